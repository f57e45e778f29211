//! A child that stays alive and answers requests, a line each.

use std::io::Write;
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::process::{Drain, Group, Job, RunError, TICK};
use base::clock::Deadline;

/// A running child, killed with its whole group when dropped.
pub struct Live {
    group: Group,
    input: Option<ChildStdin>,
    stdout: Drain<ChildStdout>,
    stderr: Drain<ChildStderr>,
}

/// What came back for one request.
#[derive(Debug)]
pub struct Reply {
    /// The line that ends it, without its mark.
    pub line: String,
    /// The other lines that [`Job::watch`] picked meanwhile, of both streams.
    pub watched: Vec<String>,
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The child could not be started or watched, or was cut; it is of no more use.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The child ended instead of answering.
    #[error("it ended: {0}")]
    Died(String),
    /// The child answered that it cannot do it.
    #[error("{0}")]
    Refused(String),
}

impl Live {
    /// Starts the child. [`Job::watch`] must pick the lines that begin with the mark of [`Self::reply`].
    pub fn start(job: &Job<'_>) -> Result<Self, RunError> {
        let mut group = job.spawn()?;
        let input = group.input();
        let (stdout, stderr) = group.pipes();
        Ok(Self {
            group,
            input,
            stdout: Drain::new(stdout, job.watch).map_err(RunError::Watch)?,
            stderr: Drain::new(stderr, job.watch).map_err(RunError::Watch)?,
        })
    }

    /// The child's process number.
    pub fn pid(&self) -> Option<u32> {
        self.group.pid().and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok())
    }

    /// Sends one line.
    pub fn send(&mut self, line: &str) -> Result<(), LiveError> {
        let written = match &mut self.input {
            Some(input) => input.write_all(line.as_bytes()).and_then(|()| input.write_all(b"\n")),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        // A child that reads no more has ended, or is about to.
        written.map_err(|error| LiveError::Died(error.to_string()))
    }

    /// Waits for the next line that begins with `mark`. After an error the child is of no more use.
    pub fn reply(&mut self, mark: &str, deadline: &Deadline) -> Result<Reply, LiveError> {
        let started = Instant::now();
        let mut watched = Vec::new();
        loop {
            // Looked at before draining, so that the last drain happens after the last write.
            let ended = self.group.has_ended().map_err(RunError::Watch)?;
            self.stdout.drain(deadline);
            let mut lines = self.stdout.watched();
            let at = lines.iter().position(|line| line.starts_with(mark));
            // What it said before its answer is in the pipe by now, whichever stream it went to.
            self.stderr.drain(deadline);
            watched.append(&mut self.stderr.watched());
            if let Some(at) = at {
                let line = lines.remove(at);
                watched.append(&mut lines);
                let line = line.strip_prefix(mark).unwrap_or(&line).trim().to_owned();
                return Ok(Reply { line, watched });
            }
            watched.append(&mut lines);
            if ended {
                let words = self.stderr.text();
                let last = words.lines().rev().find(|line| !line.trim().is_empty());
                return Err(LiveError::Died(last.unwrap_or("it said nothing").trim().to_owned()));
            }
            if deadline.expired() {
                let cancelled = deadline.is_cancelled();
                return Err(RunError::Cut { after: started.elapsed(), cancelled }.into());
            }
            self.wait(TICK.min(deadline.remaining()));
        }
    }

    /// Until the child has said something, or for so long.
    fn wait(&self, long: Duration) {
        let mut pipes = Vec::with_capacity(2);
        pipes.extend(self.stdout.pipe().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        pipes.extend(self.stderr.pipe().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let asked = Timespec::try_from(long).map(|long| poll(&mut pipes, Some(&long)));
        if !matches!(asked, Ok(Ok(_))) {
            std::thread::sleep(long);
        }
    }
}
