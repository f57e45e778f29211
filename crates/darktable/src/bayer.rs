//! A smaller copy of a raw that is still a raw: an uncompressed Bayer DNG with fewer sites.
//!
//! Every site of the copy is the mean of those of its own colour around the place that it represents, over as
//! many cells as it replaces, so that black and white level, colour matrix, white balance and Exif data hold for
//! the copy as they are; they are taken over with all other bytes of the file.
//!
//! The place that a site represents is chosen so that a picture of the copy lies on a picture of the original: darktable
//! (measured on 4.2.1, 5.0.1 and 5.4.1) scales a picture down with the centres of the upper left pixels kept in
//! place, so site `p` of the copy represents column `p * width / width of the copy`. The mean over a whole block
//! of cells, the obvious way, shifts red against blue by nearly one site, and both against the original.
//!
//! Source of the tags: DNG 1.4.

use crate::tiff::{Entry, Tiff};

const SUBFILE: u16 = 254;
const WIDTH: u16 = 256;
const HEIGHT: u16 = 257;
const BITS: u16 = 258;
const COMPRESSION: u16 = 259;
const PHOTOMETRIC: u16 = 262;
const STRIPS: u16 = 273;
const SAMPLES: u16 = 277;
const ROWS: u16 = 278;
const STRIP_BYTES: u16 = 279;
const SUB_IFDS: u16 = 330;
const PATTERN_SIZE: u16 = 33_421;
/// What names places in the mosaic or bends its values, so that it would have to change with it: a linearisation
/// table, black levels a column or row, the active area, the default crop, masked areas, and the opcodes.
const TIED: [u16; 9] = [50_712, 50_715, 50_716, 50_719, 50_720, 50_829, 50_830, 51_008, 51_009];
/// More opcodes.
const OPCODES: u16 = 51_022;
/// How many widths are tried to find one that keeps the form.
const TRIED: usize = 24;
/// Bytes that may follow the mosaic: nothing points to them.
const TRAILING: usize = 64;

/// An uncompressed Bayer mosaic in a DNG.
pub struct Mosaic<'a> {
    file: &'a [u8],
    view: Tiff<'a>,
    entries: Vec<Entry>,
    width: usize,
    height: usize,
    /// Where the mosaic begins; it goes on to the end of the file.
    start: usize,
}

impl<'a> Mosaic<'a> {
    /// Finds the mosaic of a file; the error says why none can be made smaller.
    pub fn read(file: &'a [u8]) -> Result<Self, &'static str> {
        const DAMAGED: &str = "its directories are damaged";
        let view = Tiff::open(file).ok_or("it is no DNG")?;
        let first = view.entries(view.long(4).ok_or(DAMAGED)?).ok_or(DAMAGED)?;
        let below = match first.iter().find(|entry| entry.tag == SUB_IFDS) {
            Some(entry) => view.numbers(entry).ok_or(DAMAGED)?,
            None => Vec::new(),
        };
        let mut directories = vec![first];
        for at in below {
            directories.push(view.entries(at).ok_or(DAMAGED)?);
        }
        let is = |entries: &[Entry], tag, value| {
            entries.iter().find(|e| e.tag == tag).and_then(|e| view.numbers(e)).is_some_and(|v| v == [value])
        };
        let entries = directories
            .into_iter()
            .find(|entries| is(entries, PHOTOMETRIC, 32_803) && is(entries, SUBFILE, 0))
            .ok_or("it holds no mosaic")?;
        if !is(&entries, COMPRESSION, 1) || !is(&entries, BITS, 16) || !is(&entries, SAMPLES, 1) {
            return Err("its mosaic is compressed");
        }
        let numbers = |tag| {
            let entry = entries.iter().find(|entry| entry.tag == tag)?;
            view.numbers(entry)
        };
        if numbers(PATTERN_SIZE).is_none_or(|size| size != [2, 2]) {
            return Err("its mosaic is not of the Bayer kind");
        }
        if entries.iter().any(|entry| TIED.contains(&entry.tag) || entry.tag == OPCODES) {
            return Err("it has a border, a table or corrections that belong to its full size");
        }
        let one = |tag| numbers(tag).and_then(|values| values.first().copied()).ok_or(DAMAGED);
        let (width, height, start) = (one(WIDTH)?, one(HEIGHT)?, one(STRIPS)?);
        let strips = numbers(STRIPS).unwrap_or_default();
        let mut end = start;
        for (at, bytes) in strips.iter().zip(numbers(STRIP_BYTES).ok_or(DAMAGED)?) {
            if *at != end {
                return Err("its mosaic lies in pieces");
            }
            end = end.saturating_add(bytes);
        }
        let whole = width.checked_mul(height).and_then(|sites| sites.checked_mul(2));
        let fits = end <= file.len() && file.len() - end <= TRAILING;
        if !fits || whole != Some(end - start) || width % 2 != 0 || height % 2 != 0 {
            return Err("its mosaic is not where its directory says");
        }
        Ok(Self { file, view, entries, width, height, start })
    }

    /// The longer side in sites.
    pub fn long_edge(&self) -> usize {
        self.width.max(self.height)
    }

    /// The columns and rows that are left of the mosaic when it is made `n` times smaller: even numbers, and of
    /// all that are a little larger those that keep the picture's form best, so that pictures of the copy are as
    /// large as those of the original. `None` if less than one cell would be left.
    fn less(&self, n: usize) -> Option<(usize, usize)> {
        let even = |side: f64| 2 * (side / 2.0).round() as usize;
        let form = self.height as f64 / self.width as f64;
        let least = 2 * self.width.checked_div(2 * n)?;
        let sizes =
            (least..=self.width).step_by(2).take(TRIED).map(|width| (width, even(width as f64 * form)));
        let off = |(width, height): (usize, usize)| (height as f64 / width as f64 - form).abs();
        sizes.filter(|size| size.0 > 0 && size.1 > 0).min_by(|a, b| off(*a).total_cmp(&off(*b)))
    }

    /// The file with a mosaic of about an `n`th of the width and height.
    pub fn shrunk(&self, n: usize) -> Option<Vec<u8>> {
        let (width, height) = self.less(n)?;
        let mut file = self.file.get(..self.start)?.to_vec();
        let long = |value: usize| u32::try_from(value).ok().map(|value| self.view.long_bytes(value));
        for entry in &self.entries {
            let value = match entry.tag {
                WIDTH => width,
                HEIGHT | ROWS => height,
                STRIPS => self.start,
                STRIP_BYTES => 2 * width * height,
                _ => continue,
            };
            // One value of the type LONG, in the entry.
            let place = file.get_mut(entry.at + 2..entry.at + 12)?;
            place.copy_from_slice(&[&self.view.short_bytes(4)[..], &long(1)?, &long(value)?].concat());
        }
        let axis = |from, to| (0..to).map(move |site| taps(from, to, site));
        let across: Vec<_> = axis(self.width, width).collect();
        for taps in axis(self.height, height) {
            // The rows first, then what is left of them.
            let mut row = vec![0.0_f64; self.width];
            for (y, weight) in taps {
                let at = self.start + 2 * y * self.width;
                for (x, sum) in row.iter_mut().enumerate() {
                    *sum += weight * f64::from(self.view.short(at + 2 * x)?);
                }
            }
            for taps in &across {
                let mean: f64 = taps.iter().filter_map(|&(x, weight)| Some(weight * row.get(x)?)).sum();
                file.extend_from_slice(&self.view.short_bytes(mean.round() as u16));
            }
        }
        Some(file)
    }
}

/// Which sites of a row or a column make site `site` of the copy, and with what weight.
///
/// A site represents all from half a cell's width before its centre to half after; where it ends inside one of
/// theirs, that one counts by its share. In units of a `to`th of a site everything is a whole number.
fn taps(from: usize, to: usize, site: usize) -> Vec<(usize, f64)> {
    let [scale, reach, site] = [to, from, site].map(|number| number as i64);
    let centre = site * reach;
    // A site counts for itself and for half of its neighbours of other colours.
    let overlap = |source: i64| {
        let left = (centre - reach).max((source - 1) * scale);
        (centre + reach).min((source + 1) * scale) - left
    };
    let colour = |source: &i64| (source - site) % 2 == 0;
    let near = (centre - reach) / scale - 1..=(centre + reach) / scale + 1;
    let inside = near.filter(|source| (0..from as i64).contains(source)).filter(colour);
    let taps: Vec<(i64, i64)> =
        inside.map(|source| (source, overlap(source))).filter(|tap| tap.1 > 0).collect();
    let total: i64 = taps.iter().map(|tap| tap.1).sum();
    taps.into_iter().map(|(source, weight)| (source as usize, weight as f64 / total as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dng::{DngOptions, write_dng};
    use crate::render::Picture;

    fn raw(width: u32, height: u32) -> Vec<u8> {
        let rgb = (0..width * height).flat_map(|i| [(i % 200) as u8 + 20, 90, (i / width) as u8]).collect();
        write_dng(&Picture { width, height, rgb }, &DngOptions::default()).unwrap()
    }

    #[test]
    fn a_site_stands_where_a_scaled_picture_has_it_and_keeps_its_colour() {
        for (from, to) in [(64, 32), (64, 16), (66, 22), (70, 22), (64, 20)] {
            for site in 2 * 3..to - 4 {
                let taps = taps(from, to, site);
                assert!(taps.iter().all(|(source, weight)| source % 2 == site % 2 && *weight > 0.0));
                assert!((taps.iter().map(|tap| tap.1).sum::<f64>() - 1.0).abs() < 1e-12);
                let centre: f64 = taps.iter().map(|(source, weight)| *source as f64 * weight).sum();
                let expected = site as f64 * from as f64 / to as f64;
                assert!(
                    (centre - expected).abs() < 0.34,
                    "{from} to {to}, site {site}: {centre} for {expected}"
                );
            }
            // At the borders what is there counts.
            assert!((0..to).all(|site| !taps(from, to, site).is_empty()));
        }
        // Halved, the place is met exactly.
        let centre: f64 = taps(64, 32, 7).iter().map(|(source, weight)| *source as f64 * weight).sum();
        assert!((centre - 14.0).abs() < 1e-9, "{centre}");
    }

    #[test]
    fn the_copy_is_a_raw_of_its_own_with_the_same_tags() {
        let file = raw(60, 40);
        let mosaic = Mosaic::read(&file).unwrap();
        assert_eq!(mosaic.long_edge(), 60);
        let small = mosaic.shrunk(4).unwrap();
        let copy = Mosaic::read(&small).unwrap();
        assert_eq!((copy.width, copy.height, small.len()), (18, 12, copy.start + 2 * 18 * 12));
        let tags = |mosaic: &Mosaic<'_>| mosaic.entries.iter().map(|entry| entry.tag).collect::<Vec<_>>();
        assert_eq!(tags(&copy), tags(&mosaic));
        // A flat mosaic stays as it is, colour by colour.
        let mut flat = file.clone();
        for (i, site) in flat[mosaic.start..].as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let colour = 2 * (i / 60 % 2) + i % 2;
            *site = (1000 + 100 * colour as u16).to_le_bytes();
        }
        let small = Mosaic::read(&flat).unwrap().shrunk(3).unwrap();
        let copy = Mosaic::read(&small).unwrap();
        for (i, site) in small[copy.start..].as_chunks::<2>().0.iter().enumerate() {
            let colour = 2 * (i / copy.width % 2) + i % 2;
            assert_eq!(u16::from_le_bytes(*site), 1000 + 100 * colour as u16, "site {i}");
        }
        assert!(mosaic.shrunk(0).is_none());
    }

    #[test]
    fn what_cannot_be_made_smaller_is_told_why() {
        let whole = raw(20, 20);
        let with = |tag: u16, value: u16| {
            let mut file = whole.clone();
            let at = Mosaic::read(&whole).unwrap().entries.iter().find(|entry| entry.tag == tag).unwrap().at;
            file[at + 8..at + 10].copy_from_slice(&value.to_le_bytes());
            file
        };
        let renamed = |tag: u16, to: u16| {
            let mut file = whole.clone();
            let at = Mosaic::read(&whole).unwrap().entries.iter().find(|entry| entry.tag == tag).unwrap().at;
            file[at..at + 2].copy_from_slice(&to.to_le_bytes());
            file
        };
        for (file, word) in [
            (b"\x89PNG".to_vec(), "no DNG"),
            (whole[..100].to_vec(), "damaged"),
            (with(PHOTOMETRIC, 2), "no mosaic"),
            (with(COMPRESSION, 7), "compressed"),
            (with(BITS, 12), "compressed"),
            (with(PATTERN_SIZE, 6), "Bayer"),
            (renamed(50_730, 50_829), "border"),
            (whole[..whole.len() - 2].to_vec(), "not where"),
        ] {
            let why = Mosaic::read(&file).err().unwrap_or("nothing");
            assert!(why.contains(word), "{word}: {why}");
        }
    }
}
