//! Confining a child: no network, and of all files only the system's, to read, and its own.
//!
//! darktable parses whatever a camera, or somebody who sent a photograph, put into a file. What a child was not
//! told of (keys, other photographs, addresses) it must not be able to fetch, and what is not its own it must
//! not be able to change. Why these two ways, and what they leave open: `docs/adr/0014-sandbox.md`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// How much a sandbox matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Not at all: for measuring what one costs.
    Off,
    /// It is used where one holds.
    WherePossible,
    /// Nothing runs without one.
    Required,
}

/// A way to confine a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sandbox {
    /// The kernel's own means: Landlock for files, seccomp for sockets (Linux 5.13 and newer).
    Kernel,
    /// The program `bwrap` (bubblewrap), which this is the path of: namespaces.
    Bubblewrap(PathBuf),
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => f.write_str("Landlock and seccomp"),
            Self::Bubblewrap(path) => write!(f, "bubblewrap ({})", path.display()),
        }
    }
}

/// What a confined child may reach beside the system's programs and libraries.
#[derive(Clone, Copy, Debug)]
pub struct SandboxPaths<'a> {
    /// Files and folders that it may read.
    pub read: &'a [&'a Path],
    /// Folders that it may read and write.
    pub write: &'a [&'a Path],
}

/// Where systems keep programs, libraries and what these read. Nothing of a person's is there, as a rule. Of
/// `/proc` only what tells of the machine: the folder of a process holds its environment, with its keys.
const SYSTEM: [&str; 18] = [
    "/bin",
    "/etc",
    "/gnu",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix",
    "/opt",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys",
    "/sbin",
    "/sys",
    "/usr",
    "/var",
];

impl Sandbox {
    /// What may hold here, best first. Whether a program runs in it, only a run of that program shows.
    pub fn candidates() -> Vec<Self> {
        let search = std::env::var_os("PATH").unwrap_or_default();
        let bwrap = || super::probe::on_path("bwrap", &search).map(Self::Bubblewrap);
        kernel::works().then_some(Self::Kernel).into_iter().chain(bwrap()).collect()
    }

    /// The command that runs `program` in here, without its arguments.
    pub(super) fn command(&self, program: &Path, reach: &SandboxPaths<'_>) -> Command {
        match self {
            Self::Kernel => Command::new(program),
            Self::Bubblewrap(bwrap) => {
                let mut command = Command::new(bwrap);
                // Processes of its own too: `/proc` has the environments, with the keys, of those it shows.
                command.args(["--unshare-net", "--unshare-ipc", "--unshare-pid", "--dev", "/dev"]);
                for path in readable(program, reach) {
                    command.arg("--ro-bind-try").arg(&path).arg(&path);
                }
                for path in reach.write {
                    command.arg("--bind").arg(path).arg(path);
                }
                command.args(["--proc", "/proc", "--"]).arg(program);
                command
            }
        }
    }

    /// Starts what [`Self::command`] made, on a thread that does nothing else: the kernel's restrictions are a thread's,
    /// and are handed down to what it starts.
    pub(super) fn spawn(
        &self,
        command: &mut Command,
        program: &Path,
        reach: &SandboxPaths<'_>,
    ) -> io::Result<Child> {
        match self {
            Self::Bubblewrap(_) => command.spawn(),
            Self::Kernel => {
                kernel::confine(&readable(program, reach), reach.write).map_err(io::Error::other)?;
                command.spawn()
            }
        }
    }
}

/// Everything that a child may read but not write: the system's folders, where the program is installed, and
/// what it was given.
fn readable(program: &Path, reach: &SandboxPaths<'_>) -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let given = reach.read.iter().map(|&path| path.to_owned());
    common(program, home.as_deref()).into_iter().chain(given).collect()
}

/// What of this every child may read. No folder that `home` lies in is.
fn common(program: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let folders = SYSTEM.map(PathBuf::from).into_iter().chain(installation(program));
    let foreign = folders.filter(|folder| !home.is_some_and(|home| home.starts_with(folder)));
    foreign.chain([program.to_owned()]).collect()
}

/// The folder that a program lies in and, where that is a `bin`, the one around it, which has its libraries.
pub(super) fn installation(program: &Path) -> Vec<PathBuf> {
    let real = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    let folder = real.parent().map(Path::to_owned);
    let around = folder.as_deref().filter(|f| f.ends_with("bin")).and_then(Path::parent).map(Path::to_owned);
    folder.into_iter().chain(around).collect()
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::error::Error;
    use std::path::{Path, PathBuf};

    use landlock::{
        ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
        RulesetCreatedAttr as _, Scope, path_beneath_rules,
    };
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

    /// Without what this one knows (Linux 5.13), there is no sandbox.
    const LEAST: ABI = ABI::V1;
    /// What a newer kernel can keep back beyond that, it does.
    const MOST: ABI = ABI::V9;
    /// Devices that hold nothing.
    const DEVICES: [&str; 5] = ["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];
    /// System calls that fail. A child without `socket` has no network of any kind and no message bus;
    /// `io_uring` would be a way around; cutting files short by their names is beyond Landlock before Linux 6.2.
    const REFUSED: [i64; 3] = [libc::SYS_socket, libc::SYS_io_uring_setup, libc::SYS_truncate];
    /// What numbers of system calls have in the third calling convention of x86-64, with 32-bit pointers.
    const X32: i64 = 0x4000_0000;

    type Refusal = Box<dyn Error + Send + Sync>;

    /// Whether this kernel lets a program restrict itself. Tried on a thread that ends at once.
    pub fn works() -> bool {
        let trial = std::thread::Builder::new().spawn(|| confine(&[], &[]).is_ok());
        trial.is_ok_and(|thread| thread.join().unwrap_or(false))
    }

    /// Restricts the calling thread, and whatever it starts from now on, for good.
    pub(crate) fn confine(read: &[PathBuf], write: &[&Path]) -> Result<(), Refusal> {
        let own = AccessFs::from_all(MOST) & !AccessFs::Execute;
        let device = AccessFs::from_file(MOST) & !AccessFs::Execute;
        Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(LEAST))?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(MOST))?
            .scope(Scope::from_all(MOST))?
            .create()?
            .add_rules(path_beneath_rules(read, AccessFs::from_read(MOST)))?
            .add_rules(path_beneath_rules(write, own))?
            .add_rules(path_beneath_rules(DEVICES, device))?
            .restrict_self()?;
        let refused = REFUSED.into_iter().flat_map(|call| [(call, Vec::new()), (call | X32, Vec::new())]);
        let refuse = SeccompAction::Errno(libc::EACCES.unsigned_abs());
        let arch = std::env::consts::ARCH.try_into()?;
        let filter = SeccompFilter::new(refused.collect(), SeccompAction::Allow, refuse, arch)?;
        apply_filter(&BpfProgram::try_from(filter)?)?;
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    use std::path::{Path, PathBuf};

    pub fn works() -> bool {
        false
    }

    pub(crate) fn confine(_read: &[PathBuf], _write: &[&Path]) -> Result<(), &'static str> {
        Err("only Linux has Landlock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_ones_own_does_not_open_the_home_it_lies_in() {
        let [home, service] = ["/home/ann", "/var/lib/service"].map(Path::new);
        let may_read = |program: &str, home| common(Path::new(program), Some(home));
        let has = |folders: &[PathBuf], folder: &str| folders.iter().any(|f| f == Path::new(folder));
        let own = may_read("/home/ann/bin/darktable-cli", home);
        assert!(has(&own, "/home/ann/bin") && has(&own, "/usr") && has(&own, "/var"));
        assert!(!has(&own, "/home/ann") && !has(&own, "/home"), "{own:?}");
        let loose = may_read("/home/ann/darktable-cli", home);
        assert!(has(&loose, "/home/ann/darktable-cli") && !has(&loose, "/home/ann"), "{loose:?}");
        let built = may_read("/home/ann/darktable/bin/darktable-cli", home);
        assert!(has(&built, "/home/ann/darktable") && !has(&built, "/home/ann"), "{built:?}");
        assert!(!has(&may_read("/usr/bin/darktable-cli", service), "/var"));
    }

    #[test]
    fn bubblewrap_gets_nothing_but_what_is_allowed() {
        let sandbox = Sandbox::Bubblewrap("/usr/bin/bwrap".into());
        let reach = SandboxPaths { read: &[Path::new("/given")], write: &[Path::new("/own")] };
        let command = sandbox.command(Path::new("/bin/true"), &reach);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let line = words.join(" ");
        assert!(line.starts_with("--unshare-net ") && line.ends_with(" -- /bin/true"), "{line}");
        assert!(line.contains("--ro-bind-try /given /given --bind /own /own"), "{line}");
        let writable: Vec<_> =
            words.iter().filter(|word| word.ends_with("bind") && !word.contains("ro-")).collect();
        assert_eq!(writable, ["--bind"]);
    }
}
