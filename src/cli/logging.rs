//! The log: to standard error or a file, without secrets.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Arc, Mutex};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::args::Globals;
use super::failure::Failure;
use base::redact::Redactor;

/// Where log lines go, each through the redactor.
#[derive(Clone)]
struct Sink {
    file: Option<Arc<Mutex<File>>>,
    redactor: Redactor,
}

struct Entry {
    sink: Sink,
    bytes: Vec<u8>,
}

impl Write for Entry {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Entry {
    /// A line is redacted whole: written in pieces, a secret could fall between two of them.
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&std::mem::take(&mut self.bytes)).into_owned();
        let text = self.sink.redactor.clean(text);
        // There is nowhere to say that the log cannot be written.
        let _ = match &self.sink.file {
            Some(file) => {
                file.lock().unwrap_or_else(std::sync::PoisonError::into_inner).write_all(text.as_bytes())
            }
            None => io::stderr().lock().write_all(text.as_bytes()),
        };
    }
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Entry;

    fn make_writer(&'a self) -> Entry {
        Entry { sink: self.clone(), bytes: Vec::new() }
    }
}

/// Starts logging: warnings, or more with `-v`; to a file, actions at least.
pub fn start(globals: &Globals, redactor: Redactor) -> Result<(), Failure> {
    // What is quiet is the terminal: a log file has what it is there for.
    let verbose = globals.verbose.max(u8::from(globals.log_file.is_some()));
    let level = match (globals.quiet && globals.log_file.is_none(), verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "warn,chemigram=info",
        (false, 2) => "info,chemigram=debug",
        _ => "debug",
    };
    let file = match &globals.log_file {
        Some(path) => {
            let open = File::options().create(true).append(true).mode(0o600).open(path);
            Some(Arc::new(Mutex::new(open.map_err(|e| Failure::file("write", path, &e))?)))
        }
        None => None,
    };
    let color = file.is_none() && io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(level))
        .with_ansi(color)
        .with_target(false)
        .with_writer(Sink { file, redactor })
        .finish();
    // A second start in one process (tests) changes nothing.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_written_in_pieces_is_still_taken_out() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let file = Some(Arc::new(Mutex::new(path.reopen().unwrap())));
        let sink = Sink { file, redactor: Redactor::new(["sk-canary-123456".into()]) };
        let mut entry = sink.make_writer();
        entry.write_all(b"key sk-can").unwrap();
        entry.write_all(b"ary-123456 sent\n").unwrap();
        drop(entry);
        assert_eq!(std::fs::read_to_string(path.path()).unwrap(), "key [redacted] sent\n");
    }
}
