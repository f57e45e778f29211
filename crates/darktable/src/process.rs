//! Running a child that may hang, crash, flood or leave children behind, and still returning on time.
//!
//! One loop on the caller's thread does everything: it drains both pipes without blocking, checks whether the
//! child has ended, and kills its whole process group when the deadline passes. No reader thread exists that
//! a forgotten grandchild with an open pipe could hold up.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::sandbox::{Sandbox, SandboxPaths};
use base::clock::Deadline;

/// How often a running child is checked.
pub(super) const TICK: Duration = Duration::from_millis(4);
/// How long a killed child may take to die before it is left to a thread that only reaps it.
const DEATH: Duration = Duration::from_millis(80);
/// How much of each stream is kept: its end.
const KEEP: usize = 64 * 1024;
/// Of a line longer than this only the beginning is read.
const LINE: usize = 4 * 1024;
/// How many watched lines are kept.
const WATCHED: usize = 256;
/// The largest file that a child may write.
#[cfg(target_os = "linux")]
const FILE_LIMIT: u64 = 8 << 30;
/// How many files a child may have open at once: what most systems begin with; darktable uses about ten.
#[cfg(target_os = "linux")]
const OPEN_LIMIT: u64 = 1024;
/// Which thread started the child; also in `preload/parent.rs`.
#[cfg(target_os = "linux")]
const STARTED_BY: &str = "CHEMIGRAM_STARTED_BY";
/// The least that [`Job::memory`] may sensibly be: a raw of 100 megapixels takes 7 GiB.
const LEAST_MEMORY: u64 = 8 << 30;

/// One program to run, without a shell, in a cleared environment.
#[derive(Debug)]
pub struct Job<'a> {
    /// The program, as an absolute path.
    pub program: &'a Path,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// `HOME` of the child: a private folder.
    pub home: &'a Path,
    /// `TMPDIR` and working directory of the child: a private folder.
    pub temp: &'a Path,
    /// What the program's environment holds beyond the allow-list.
    pub env: &'a [(&'a str, &'a str)],
    /// What confines it, if anything does.
    pub sandbox: Option<&'a Sandbox>,
    /// What it may reach then, beside `home` and `temp`, which it may write in.
    pub reach: SandboxPaths<'a>,
    /// How many bytes of memory it may map; [`memory`] says how many are sensible.
    pub memory: u64,
    /// Picks the lines of output that are kept whole, however much else is printed.
    pub watch: fn(&str) -> bool,
}

/// As many bytes as the machine has memory, or what a very large raw takes, whichever is more. A child that wants
/// more does not get it, and ends, before the machine is out of memory for everybody.
pub fn memory() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let info = rustix::system::sysinfo();
        (info.totalram * u64::from(info.mem_unit)).max(LEAST_MEMORY)
    }
    #[cfg(not(target_os = "linux"))]
    LEAST_MEMORY
}

/// How a child ended by itself.
#[derive(Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// The end of what it printed to standard output.
    pub stdout: String,
    /// The end of what it printed to standard error.
    pub stderr: String,
    /// The lines that [`Job::watch`] picked, of both streams.
    pub watched: Vec<String>,
}

/// Why a child did not end by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program cannot be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The deadline passed or the work was cancelled; the whole process group is gone.
    #[error("cut after {after:?}")]
    Cut {
        /// How long it ran.
        after: Duration,
        /// Whether by cancellation rather than by the clock.
        cancelled: bool,
    },
    /// The system refused to watch the child.
    #[error("cannot watch a child process: {0}")]
    Watch(io::Error),
}

impl Job<'_> {
    /// Runs the child until it ends or `deadline` passes, whichever is first. Returns within about 100 ms of
    /// the deadline. When it returns, no process of the child's group is left.
    ///
    /// # Errors
    /// [`RunError`], if it cannot be started, or `deadline` passes.
    pub fn run(&self, deadline: &Deadline) -> Result<Ended, RunError> {
        let started = Instant::now();
        let cut = || RunError::Cut { after: started.elapsed(), cancelled: deadline.is_cancelled() };
        if deadline.expired() {
            return Err(cut());
        }
        let mut group = self.start(Stdio::null())?;
        let (stdout, stderr) = group.pipes();
        let mut stdout = Drain::new(stdout, self.watch).map_err(RunError::Watch)?;
        let mut stderr = Drain::new(stderr, self.watch).map_err(RunError::Watch)?;
        loop {
            // Looked at before draining, so that the last drain happens after the last write.
            let ended = group.has_ended().map_err(RunError::Watch)?;
            stdout.drain(deadline);
            stderr.drain(deadline);
            if ended {
                break;
            }
            if deadline.expired() {
                return Err(cut());
            }
            std::thread::sleep(TICK.min(deadline.remaining()));
        }
        let status = group.finish().map_err(RunError::Watch)?;
        let mut watched = stdout.end();
        watched.append(&mut stderr.end());
        Ok(Ended { status, stdout: stdout.text(), stderr: stderr.text(), watched })
    }

    /// Starts the child with a pipe to its standard input as well. It is limited as [`Self::run`] limits it.
    pub(super) fn spawn(&self) -> Result<Group, RunError> {
        self.start(Stdio::piped())
    }

    fn start(&self, input: Stdio) -> Result<Group, RunError> {
        let write = [self.reach.write, &[self.home, self.temp]].concat();
        let reach = SandboxPaths { read: self.reach.read, write: &write };
        let mut command = match self.sandbox {
            Some(sandbox) => sandbox.command(self.program, &reach),
            None => Command::new(self.program),
        };
        self.set(command.stdin(input));
        // A thread that ends at once, whoever calls: what is loaded into darktable waits for that, and then asks to end
        // with the main thread rather than with this one.
        let child = std::thread::scope(|scope| {
            let started = std::thread::Builder::new().spawn_scoped(scope, || {
                #[cfg(target_os = "linux")]
                command.env(STARTED_BY, rustix::thread::gettid().as_raw_nonzero().to_string());
                match self.sandbox {
                    Some(sandbox) => sandbox.spawn(&mut command, self.program, &reach),
                    None => command.spawn(),
                }
            })?;
            started.join().unwrap_or_else(|_| Err(io::Error::other("the thread that starts it ended")))
        });
        let child = child.map_err(|source| RunError::Start { program: self.program.to_owned(), source })?;
        let group = Group { child: Some(child) };
        limit(group.pid(), self.memory);
        Ok(group)
    }

    /// Sets everything but the program, its input and the limits. The environment is an allow-list: no key,
    /// token or setting of the caller reaches the child.
    fn set(&self, command: &mut Command) {
        let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
        command
            .args(&self.args)
            .env_clear()
            .env("PATH", path)
            .env("LANG", "C.UTF-8")
            .env("LC_ALL", "C.UTF-8")
            .env("HOME", self.home)
            .env("TMPDIR", self.temp)
            .envs(self.env.iter().copied())
            .current_dir(self.temp)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
    }
}

/// No core dumps of a photographer's picture, no runaway file, and no more memory than `memory` bytes; and when
/// the system runs out of memory all the same, this is the process that it ends. Best effort: a child that has
/// already ended, or a system without `prlimit`, is no reason to fail.
///
/// Processes are not counted: that limit holds for a user, not for a child, and not for root.
#[cfg(target_os = "linux")]
fn limit(pid: Option<Pid>, memory: u64) {
    use rustix::process::{Resource, Rlimit, prlimit};
    let Some(child) = pid else { return };
    let limits = [
        (Resource::Core, 0),
        (Resource::Fsize, FILE_LIMIT),
        (Resource::Nofile, OPEN_LIMIT),
        (Resource::As, memory),
    ];
    for (resource, most) in limits {
        let _ = prlimit(pid, resource, Rlimit { current: Some(most), maximum: Some(most) });
    }
    let _ = std::fs::write(format!("/proc/{}/oom_score_adj", child.as_raw_nonzero()), "1000");
}

#[cfg(not(target_os = "linux"))]
fn limit(_pid: Option<Pid>, _memory: u64) {}

/// A child that leads its own process group. Dropping it kills the group and reaps the child.
pub(super) struct Group {
    child: Option<Child>,
}

impl Group {
    /// The leader, which names the group.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.child.as_ref().map(Pid::from_child)
    }

    /// Standard output and standard error, once.
    pub(super) fn pipes(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        let child = self.child.as_mut();
        child.map_or((None, None), |c| (c.stdout.take(), c.stderr.take()))
    }

    /// Standard input, once.
    pub(super) fn input(&mut self) -> Option<ChildStdin> {
        self.child.as_mut().and_then(|child| child.stdin.take())
    }

    /// Whether the leader has ended. It stays a zombie, so that its number still names this group.
    pub(super) fn has_ended(&self) -> io::Result<bool> {
        let Some(pid) = self.pid() else { return Ok(true) };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match rustix::process::waitid(WaitId::Pid(pid), options) {
            Ok(status) => Ok(status.is_some()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Kills what the leader left behind and reaps the leader, which has ended.
    fn finish(mut self) -> io::Result<ExitStatus> {
        self.kill();
        match self.child.take() {
            Some(mut child) => child.wait(),
            None => Err(io::Error::other("the child is gone")),
        }
    }

    fn kill(&self) {
        if let Some(pid) = self.pid() {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        let Some(mut child) = self.child.take() else { return };
        let killed = Instant::now();
        while matches!(child.try_wait(), Ok(None)) {
            if killed.elapsed() > DEATH {
                // Stuck in the kernel (a dead network disk): it dies when the kernel lets it.
                std::thread::spawn(move || child.wait());
                return;
            }
            std::thread::sleep(TICK);
        }
    }
}

/// Reads one pipe without blocking: keeps its end, and the lines that are watched for.
pub(super) struct Drain<R> {
    pipe: Option<R>,
    kept: Vec<u8>,
    line: Vec<u8>,
    watch: fn(&str) -> bool,
    watched: Vec<String>,
}

impl<R: Read + AsFd> Drain<R> {
    pub(super) fn new(pipe: Option<R>, watch: fn(&str) -> bool) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            let flags = rustix::fs::fcntl_getfl(pipe)?;
            rustix::fs::fcntl_setfl(pipe, flags | rustix::fs::OFlags::NONBLOCK)?;
        }
        Ok(Self { pipe, kept: Vec::new(), line: Vec::new(), watch, watched: Vec::new() })
    }

    /// Reads what is there. Stops at the deadline too: a child may print faster than it can be read.
    pub(super) fn drain(&mut self, deadline: &Deadline) {
        let mut buffer = [0; 16 * 1024];
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(&mut buffer) {
                Ok(n) if n > 0 => self.take(buffer.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => self.pipe = None,
            }
            if deadline.expired() {
                return;
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
        if self.kept.len() > 2 * KEEP {
            self.kept.drain(..self.kept.len() - KEEP);
        }
        for part in bytes.split_inclusive(|&b| b == b'\n') {
            let room = LINE.saturating_sub(self.line.len()).min(part.len());
            self.line.extend_from_slice(part.get(..room).unwrap_or_default());
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        let line = line.trim_end();
        if self.watched.len() < WATCHED && (self.watch)(line) {
            self.watched.push(line.to_owned());
        }
        self.line.clear();
    }

    /// The pipe, until its other end is closed.
    pub(super) fn pipe(&self) -> Option<&R> {
        self.pipe.as_ref()
    }

    /// The watched lines since the last call; a line that has not ended yet comes with the next.
    pub(super) fn watched(&mut self) -> Vec<String> {
        std::mem::take(&mut self.watched)
    }

    /// The watched lines; a last line without its newline counts.
    fn end(&mut self) -> Vec<String> {
        self.end_line();
        std::mem::take(&mut self.watched)
    }

    pub(super) fn text(&self) -> String {
        let from = self.kept.len().saturating_sub(KEEP);
        String::from_utf8_lossy(self.kept.get(from..).unwrap_or_default()).into_owned()
    }
}

/// Turns anything that names arguments into what [`Job::args`] holds.
pub fn arguments<'a>(args: impl IntoIterator<Item = &'a (impl AsRef<OsStr> + ?Sized + 'a)>) -> Vec<OsString> {
    args.into_iter().map(|a| a.as_ref().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use base::clock::{Cancel, ManualClock, SystemClock};

    fn sh(script: &str, deadline: &Deadline) -> Result<Ended, RunError> {
        let dir = tempfile::tempdir().unwrap();
        let args = arguments(["-c", script]);
        let watch = |line: &str| line.contains("drift");
        Job {
            program: Path::new("/bin/sh"),
            args,
            home: dir.path(),
            temp: dir.path(),
            env: &[],
            sandbox: None,
            reach: SandboxPaths { read: &[], write: &[] },
            memory: 1 << 28,
            watch,
        }
        .run(deadline)
    }

    fn until(what: impl Fn() -> bool) {
        let started = Instant::now();
        while !what() {
            assert!(started.elapsed() < Duration::from_secs(120), "it never came to be");
            std::thread::sleep(TICK);
        }
    }

    fn within(millis: u64) -> Deadline {
        Deadline::after(Arc::new(SystemClock), Duration::from_millis(millis))
    }

    #[test]
    fn an_ending_has_its_status_and_both_streams() {
        let ended = sh("echo out; echo err >&2; exit 3", &within(300_000)).unwrap();
        assert_eq!(ended.status.code(), Some(3));
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn a_flood_is_bounded_and_does_not_wash_a_watched_line_away() {
        let script =
            "echo 'drift here' >&2; head -c 3000000 /dev/zero | tr '\\0' x >&2; echo; printf 'drift end'";
        let ended = sh(script, &within(300_000)).unwrap();
        assert!(ended.status.success());
        assert_eq!(ended.stderr.len(), KEEP);
        assert_eq!(ended.watched, ["drift end", "drift here"]);
    }

    #[test]
    fn a_deadline_kills_the_whole_group_even_if_it_ignores_term() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("grandchild");
        let script = format!(
            "trap '' TERM HUP; sh -c \"trap '' TERM HUP; echo \\$\\$ > '{0}.new'; mv '{0}.new' '{0}'; sleep 600\" & sleep 600",
            mark.display()
        );
        // The time is up as soon as the grandchild is at work.
        let clock = Arc::new(ManualClock::default());
        let deadline = Deadline::after(clock.clone(), Duration::from_secs(1));
        let (error, grandchild) = std::thread::scope(|scope| {
            let cut = scope.spawn(|| sh(&script, &deadline).unwrap_err());
            until(|| mark.exists());
            clock.advance(Duration::from_secs(1));
            (cut.join().unwrap(), std::fs::read_to_string(&mark).unwrap())
        });
        assert!(matches!(error, RunError::Cut { cancelled: false, .. }), "{error}");
        let stat = Path::new("/proc").join(grandchild.trim()).join("stat");
        until(|| std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")));
    }

    #[test]
    fn a_grandchild_outside_the_group_that_holds_the_pipe_does_not_delay_the_answer() {
        let ended = sh("setsid sleep 600 & echo $!", &within(300_000)).unwrap();
        assert!(ended.status.success());
        let pid = ended.stdout.trim().parse().unwrap();
        // It lives: nobody waited for it.
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }

    #[test]
    fn a_cancellation_is_told_from_the_clock() {
        let cancel = Cancel::default();
        let deadline = Deadline::never().with_cancel(cancel.clone());
        let other = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            cancel.cancel();
        });
        let error = sh("sleep 60", &deadline).unwrap_err();
        other.join().unwrap();
        assert!(matches!(error, RunError::Cut { cancelled: true, .. }), "{error}");
    }

    #[test]
    fn the_environment_is_an_allow_list() {
        let ended = sh("env", &within(300_000)).unwrap();
        let names: Vec<_> = ended.stdout.lines().filter_map(|l| l.split_once('=')).map(|(n, _)| n).collect();
        // The shell adds the last three or four by itself.
        let allowed = [
            "PATH",
            "LANG",
            "LC_ALL",
            "HOME",
            "TMPDIR",
            "CHEMIGRAM_STARTED_BY",
            "PWD",
            "SHLVL",
            "_",
            "OLDPWD",
        ];
        assert!(names.contains(&"HOME"));
        assert!(names.iter().all(|n| allowed.contains(n)), "{names:?}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_limits_hold() {
        let script = "sleep 0.1; for l in c f n v; do ulimit -$l; done; cat /proc/self/oom_score_adj";
        let ended = sh(script, &within(300_000)).unwrap();
        let limits: Vec<_> = ended.stdout.lines().collect();
        // Files in blocks of 512 bytes, memory in KiB.
        assert_eq!(limits, ["0", "16777216", "1024", "262144", "1000"]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_child_that_eats_memory_ends_by_itself() {
        // A line without an end, which must be held in full.
        let ended = sh("sleep 0.1; tail -n 1 /dev/zero", &within(300_000)).unwrap();
        assert!(!ended.status.success());
        assert!(ended.stderr.contains("memory"), "{}", ended.stderr);
    }
}
