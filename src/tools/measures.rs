//! The numbers of a session's pictures, each measured once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::error::{ErrorCode, Fault};
use base::ids::Hash;
use darktable::render::Rendered;
use pixels::metrics::difference::Difference;
use pixels::metrics::stats::ImageStats;
use pixels::planes::Planes;

/// What was measured. Whoever wants a number while it is measured waits for it, and measures nothing.
#[derive(Debug, Default)]
pub struct Measures(Mutex<Known>);

/// By the pixels of the pictures.
#[derive(Debug, Default)]
struct Known {
    stats: HashMap<Hash, ImageStats>,
    differences: HashMap<(Hash, Hash), Difference>,
    /// The latest at the end.
    planes: VecDeque<(Hash, Arc<Planes>)>,
}

/// Pictures that are kept in CIELAB, those of the latest comparisons: a state's, its baseline's and its parent's.
const HELD: usize = 4;
/// Numbers that are kept of as many pictures, and of as many pairs; then they are measured anew.
const NUMBERS: usize = 128;
/// Larger pictures are converted anew each time: 16 bytes a pixel.
const LARGEST: usize = 2 << 20;

impl Measures {
    /// The statistics of a picture.
    pub fn stats(&self, rendered: &Rendered) -> ImageStats {
        let mut known = self.lock();
        if let Some(found) = known.stats.get(&rendered.pixel_hash) {
            return found.clone();
        }
        let stats = ImageStats::with(&rendered.picture, &known.planes(rendered));
        make_room(&mut known.stats);
        known.stats.insert(rendered.pixel_hash.clone(), stats.clone());
        stats
    }

    /// The difference of two pictures.
    pub fn difference(&self, a: &Rendered, b: &Rendered) -> Result<Difference, Fault> {
        let pair = (a.pixel_hash.clone(), b.pixel_hash.clone());
        let mut known = self.lock();
        if let Some(found) = known.differences.get(&pair) {
            return Ok(found.clone());
        }
        let (seen_a, seen_b) = (known.planes(a), known.planes(b));
        let found = Difference::with((&a.picture, &seen_a), (&b.picture, &seen_b))
            .map_err(|e| Fault::new(ErrorCode::StateError, e.to_string()))?;
        make_room(&mut known.differences);
        known.differences.insert(pair, found.clone());
        Ok(found)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Forgets all of a full map: what a session looks at again it has seen a moment ago, and finds out once more.
pub(super) fn make_room<K, V>(map: &mut HashMap<K, V>) {
    if map.len() >= NUMBERS {
        map.clear();
    }
}

impl Known {
    fn planes(&mut self, rendered: &Rendered) -> Arc<Planes> {
        let held = self.planes.iter().position(|(hash, _)| *hash == rendered.pixel_hash);
        if let Some(found) = held.and_then(|at| self.planes.remove(at)) {
            self.planes.push_back(found.clone());
            return found.1;
        }
        let planes = Arc::new(Planes::of(&rendered.picture.rgb));
        if planes.pixels() <= LARGEST {
            self.planes.push_back((rendered.pixel_hash.clone(), Arc::clone(&planes)));
            if self.planes.len() > HELD {
                self.planes.pop_front();
            }
        }
        planes
    }
}
