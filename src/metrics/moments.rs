//! Running mean and standard deviation.

/// The first two moments of what was added.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moments {
    sum: f64,
    squares: f64,
    count: u64,
}

impl Moments {
    #[inline]
    pub(super) fn add(&mut self, value: f64) {
        self.sum += value;
        self.squares += value * value;
        self.count += 1;
    }

    /// The mean; 0 of nothing.
    pub(super) fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }

    /// The standard deviation of the values themselves, not an estimate from a sample; 0 of nothing.
    pub(super) fn deviation(&self) -> f64 {
        (self.squares / self.count.max(1) as f64 - self.mean() * self.mean()).max(0.0).sqrt()
    }
}
