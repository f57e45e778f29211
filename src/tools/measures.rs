//! The numbers of a session's pictures, each measured once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::darktable::render::Rendered;
use crate::error::{ErrorCode, Fault};
use crate::ids::Hash;
use crate::metrics::difference::Difference;
use crate::metrics::stats::ImageStats;

/// What was measured, by the pixels of the pictures.
#[derive(Debug, Default)]
pub struct Measures {
    stats: Mutex<HashMap<Hash, ImageStats>>,
    differences: Mutex<HashMap<(Hash, Hash), Difference>>,
}

impl Measures {
    /// The statistics of a picture.
    pub fn stats(&self, rendered: &Rendered) -> ImageStats {
        if let Some(found) = lock(&self.stats).get(&rendered.pixel_hash) {
            return found.clone();
        }
        let stats = ImageStats::of(&rendered.picture);
        lock(&self.stats).insert(rendered.pixel_hash.clone(), stats.clone());
        stats
    }

    /// The difference of two pictures.
    pub fn difference(&self, a: &Rendered, b: &Rendered) -> Result<Difference, Fault> {
        let pair = (a.pixel_hash.clone(), b.pixel_hash.clone());
        if let Some(found) = lock(&self.differences).get(&pair) {
            return Ok(found.clone());
        }
        let found = Difference::between(&a.picture, &b.picture)
            .map_err(|e| Fault::new(ErrorCode::StateError, e.to_string()))?;
        lock(&self.differences).insert(pair, found.clone());
        Ok(found)
    }

    /// Both of a picture that was begun ahead, against those that it will be held against.
    pub fn measure(&self, rendered: &Rendered, others: &[Rendered]) {
        self.stats(rendered);
        for other in others {
            // Whoever asks for it meets the same failure, and says so.
            let _ = self.difference(other, rendered);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
