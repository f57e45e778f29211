//! What is too large for a transcript line, as files named by their hash beside it.

use std::io;
use std::path::{Path, PathBuf};

use crate::conversation::ImageRef;
use crate::provider::Blobs;
use base::files;
use base::ids::Hash;
use base::redact::Redactor;
use darktable::render::Picture;
use pixels::jpeg;

/// The `blobs/` folder of one session.
#[derive(Clone, Debug)]
pub struct BlobStore {
    folder: PathBuf,
    redactor: Redactor,
}

impl BlobStore {
    /// The store in `folder`, made when it is first written to.
    pub fn new(folder: PathBuf, redactor: Redactor) -> Self {
        Self { folder, redactor }
    }

    /// Stores bytes and returns their name. Text is redacted first, so the name is that of what is stored.
    pub fn put(&self, bytes: &[u8]) -> io::Result<Hash> {
        let clean = std::str::from_utf8(bytes).ok().map(|text| self.redactor.clean(text.to_owned()));
        let bytes = clean.as_deref().map_or(bytes, str::as_bytes);
        let name = Hash::of(bytes);
        let path = self.path(&name);
        if !path.exists() {
            // Whose disk is full, if it is, must be said.
            let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
            base::durable::write(&path, bytes).map_err(named)?;
        }
        Ok(name)
    }

    /// Stores a picture as a JPEG without any metadata.
    pub fn put_picture(&self, picture: &Picture, caption: String) -> io::Result<ImageRef> {
        let bytes = jpeg(picture)?;
        let sha256 = self.put(&bytes)?;
        Ok(ImageRef {
            sha256,
            media_type: "image/jpeg".into(),
            width: picture.width,
            height: picture.height,
            bytes: bytes.len() as u64,
            caption,
        })
    }

    /// Where a blob lies.
    pub fn path(&self, name: &Hash) -> PathBuf {
        self.folder.join(name.as_str())
    }
}

impl Blobs for BlobStore {
    fn bytes(&self, name: &Hash) -> io::Result<Vec<u8>> {
        let bytes = files::read(&self.path(name), files::LARGEST_LIST)?;
        if Hash::of(&bytes) == *name {
            Ok(bytes)
        } else {
            Err(io::Error::other(format!("blob {name:?} is damaged")))
        }
    }
}

/// Writes a picture as a JPEG file, whole or not at all.
pub fn write_jpeg(path: &Path, picture: &Picture) -> io::Result<()> {
    base::durable::write(path, &jpeg(picture)?)
}
