//! Running mean and standard deviation.

/// Sums that are added up side by side, in one instruction.
const LANES: usize = 8;

/// The first two moments of what was added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moments {
    sum: f64,
    squares: f64,
    count: u64,
}

impl Moments {
    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.squares += value * value;
        self.count += 1;
    }

    /// Adds many values, which is quicker than one by one.
    #[inline(always)]
    pub(crate) fn add_all(&mut self, values: &[f32]) {
        self.sum += sum(values);
        self.squares += summed(values, |value| value * value);
        self.count += values.len() as u64;
    }

    /// Adds what another one has.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.sum += other.sum;
        self.squares += other.squares;
        self.count += other.count;
    }

    /// How many values were added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean; 0 of nothing.
    pub fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }

    /// The standard deviation of the values themselves, not an estimate from a sample; 0 of nothing.
    pub fn deviation(&self) -> f64 {
        (self.squares / self.count.max(1) as f64 - self.mean() * self.mean()).max(0.0).sqrt()
    }
}

/// The sum of all values.
#[inline(always)]
pub(crate) fn sum(values: &[f32]) -> f64 {
    summed(values, |value| value)
}

#[inline(always)]
fn summed(values: &[f32], of: impl Fn(f64) -> f64) -> f64 {
    let mut sums = [0.0; LANES];
    let (whole, rest) = values.as_chunks::<LANES>();
    for values in whole {
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += of(f64::from(*value));
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|value| of(f64::from(*value))).sum::<f64>()
}
