//! Where this program's files are: the folders of the XDG base directory specification.

use std::path::{Path, PathBuf};

use super::failure::Failure;
use base::error::ErrorCode;

/// The user's folders, each already ending in `chemigram`.
#[derive(Clone, Debug)]
pub struct Folders {
    data: PathBuf,
    config: PathBuf,
    cache: PathBuf,
}

impl Folders {
    /// From the environment.
    pub fn find() -> Result<Self, Failure> {
        Self::from_env(&|name| std::env::var_os(name).map(PathBuf::from))
    }

    fn from_env(env: &dyn Fn(&str) -> Option<PathBuf>) -> Result<Self, Failure> {
        // Relative paths in these variables are to be ignored, the specification says.
        let absolute = |name: &str| env(name).filter(|path| path.is_absolute());
        let folder = |name: &str, below: &str| {
            let home = || absolute("HOME").map(|home| home.join(below));
            absolute(name).or_else(home).map(|path| path.join("chemigram")).ok_or_else(|| {
                Failure::new(
                    ErrorCode::StateError,
                    format!("neither {name} nor HOME is set to an absolute path"),
                )
                .remedy("set HOME")
            })
        };
        Ok(Self {
            data: folder("XDG_DATA_HOME", ".local/share")?,
            config: folder("XDG_CONFIG_HOME", ".config")?,
            cache: folder("XDG_CACHE_HOME", ".cache")?,
        })
    }

    /// The library, unless another is named.
    pub fn library(&self) -> PathBuf {
        self.data.join("photos")
    }

    /// The user's own moves and modules.
    pub fn vocabulary(&self) -> PathBuf {
        self.data.join("vocabulary")
    }

    /// The LUTs of the user's own moves: darktable's LUT folder.
    pub fn luts(&self) -> PathBuf {
        self.vocabulary().join("luts")
    }

    /// The user's own lens profiles, which are lensfun's and not this program's.
    pub fn lenses(&self) -> PathBuf {
        self.data.with_file_name("lensfun")
    }

    /// Runs of evaluations, with their sessions.
    pub fn evaluations(&self) -> PathBuf {
        self.data.join("evaluations")
    }

    pub fn tastes(&self) -> PathBuf {
        self.config.join("tastes")
    }

    pub fn prompts(&self) -> PathBuf {
        self.config.join("prompts")
    }

    /// The user's own golden sets.
    pub fn golden_sets(&self) -> PathBuf {
        self.data.join("scenarios")
    }

    /// Golden sets out of the program.
    pub fn unpacked_sets(&self) -> PathBuf {
        self.cache.join("golden")
    }

    pub fn protocols(&self) -> PathBuf {
        self.config.join("protocols")
    }

    pub fn providers(&self) -> PathBuf {
        self.config.join("providers")
    }

    /// darktable's private configuration and scratch space.
    pub fn darktable(&self) -> PathBuf {
        self.cache.join("darktable")
    }

    pub fn renders(&self) -> PathBuf {
        self.cache.join("renders")
    }

    /// How large the cache of rendered pictures may become, in bytes, where a person has set it.
    pub fn cache_limit(&self) -> PathBuf {
        self.config.join("cache_limit")
    }

    /// Raws and photos that workers fetch.
    pub fn workers(&self) -> PathBuf {
        self.cache.join("workers")
    }

    /// Smaller copies of raws.
    pub fn proxies(&self) -> PathBuf {
        self.cache.join("proxies")
    }

    /// The demo, outside a checkout.
    pub fn demo(&self) -> PathBuf {
        self.cache.join("demo")
    }

    /// Those that commands write to.
    pub fn written(&self) -> [(&'static str, &Path); 3] {
        [("data", &self.data), ("configuration", &self.config), ("cache", &self.cache)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specification_decides_and_relative_paths_are_ignored() {
        let env = |name: &str| match name {
            "HOME" => Some(PathBuf::from("/home/ada")),
            "XDG_CACHE_HOME" => Some(PathBuf::from("/fast")),
            "XDG_DATA_HOME" => Some(PathBuf::from("here")),
            _ => None,
        };
        let folders = Folders::from_env(&env).unwrap();
        assert_eq!(folders.library(), Path::new("/home/ada/.local/share/chemigram/photos"));
        assert_eq!(folders.tastes(), Path::new("/home/ada/.config/chemigram/tastes"));
        assert_eq!(folders.renders(), Path::new("/fast/chemigram/renders"));
        assert!(Folders::from_env(&|_| None).unwrap_err().message().contains("HOME"));
    }
}
