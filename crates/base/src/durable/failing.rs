//! A disk that fails, for tests.

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// Does some work on a thread of its own, on which this system call (a number of `libc`, such as `SYS_fsync`) fails
/// with `EIO`.
///
/// # Panics
/// When the kernel refuses the filter, or when the work panics.
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
pub fn without<T: Send>(call: i64, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let fails = SeccompAction::Errno(libc::EIO.unsigned_abs());
            let arch = std::env::consts::ARCH.try_into().unwrap();
            let rules = [(call, Vec::new())].into();
            let filter = SeccompFilter::new(rules, SeccompAction::Allow, fails, arch).unwrap();
            apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}
