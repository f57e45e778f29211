//! Which colour space an ICC profile describes, by its numbers: profiles of one space go by many names.
//!
//! Read are matrix profiles as ICC.1:2001-04 and ICC.1:2010 define them: the three colourants and the curve of
//! green.

/// Red, green and blue in XYZ, relative to D50.
pub type Primaries = [[f64; 3]; 3];

/// How far a colourant may be off; sRGB and its nearest neighbour here differ by a hundred times that.
const CLOSE: f64 = 0.001;
/// How far the middle of a curve may be off; the nearest two here differ by 0.0037.
const CLOSE_MIDDLE: f64 = 0.001;

/// What matters of a profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Icc {
    primaries: Primaries,
    middle: f64,
}

impl Icc {
    /// Reads a profile; `None` if it is damaged or of another kind.
    pub fn read(profile: &[u8]) -> Option<Self> {
        let colourant = |name| xyz(tag(profile, name)?);
        let primaries = [colourant(b"rXYZ")?, colourant(b"gXYZ")?, colourant(b"bXYZ")?];
        Some(Self { primaries, middle: middle(tag(profile, b"gTRC")?)? })
    }

    /// Whether it has these primaries, and maps the encoded value 0.5 to the linear light `middle`.
    pub fn is(&self, primaries: &Primaries, middle: f64) -> bool {
        let pairs = self.primaries.iter().flatten().zip(primaries.iter().flatten());
        let mut off = pairs.map(|(a, b)| (a - b).abs());
        off.all(|off| off < CLOSE) && (self.middle - middle).abs() < CLOSE_MIDDLE
    }
}

/// The data of a tag.
fn tag<'a>(profile: &'a [u8], name: &[u8; 4]) -> Option<&'a [u8]> {
    let (count, table) = profile.get(128..)?.split_first_chunk::<4>()?;
    let (entries, _) = table.as_chunks::<12>();
    let count = usize::try_from(u32::from_be_bytes(*count)).ok()?;
    let [_, _, _, _, place @ ..] = entries.iter().take(count).find(|entry| entry.starts_with(name))?;
    let place = u64::from_be_bytes(*place);
    let start = usize::try_from(place >> 32).ok()?;
    let length = usize::try_from(place & 0xffff_ffff).ok()?;
    profile.get(start..start.checked_add(length)?)
}

/// A value of `XYZType`.
fn xyz(data: &[u8]) -> Option<[f64; 3]> {
    let numbers = fixed(data.strip_prefix(b"XYZ \0\0\0\0")?);
    numbers.get(..3)?.try_into().ok()
}

/// `s15Fixed16Number`s.
fn fixed(data: &[u8]) -> Vec<f64> {
    let (numbers, _) = data.as_chunks::<4>();
    numbers.iter().map(|n| f64::from(i32::from_be_bytes(*n)) / 65_536.0).collect()
}

/// What a curve maps 0.5 to: of `curveType`, or `parametricCurveType` with the functions 0 and 3.
fn middle(data: &[u8]) -> Option<f64> {
    if let Some(data) = data.strip_prefix(b"curv\0\0\0\0") {
        let (count, points) = data.split_first_chunk::<4>()?;
        let (points, _) = points.as_chunks::<2>();
        let at = |index: usize| points.get(index).map(|point| f64::from(u16::from_be_bytes(*point)));
        return match usize::try_from(u32::from_be_bytes(*count)).ok()? {
            0 => Some(0.5),
            1 => Some(0.5_f64.powf(at(0)? / 256.0)),
            // Half-way between the two in the middle, which are one where the count is odd.
            count => Some((at((count - 1) / 2)? + at(count / 2)?) / (2.0 * 65_535.0)),
        };
    }
    let (kind, numbers) = data.strip_prefix(b"para\0\0\0\0")?.split_first_chunk::<4>()?;
    match (kind, fixed(numbers).as_slice()) {
        ([0, 0, ..], [gamma, ..]) => Some(0.5_f64.powf(*gamma)),
        ([0, 3, ..], [gamma, a, b, ..]) => Some((a * 0.5 + b).powf(*gamma)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(curve: &[u8]) -> Vec<u8> {
        let colour = |rgb: [f64; 3]| {
            let numbers = rgb.map(|v| ((v * 65_536.0).round() as i32).to_be_bytes());
            [b"XYZ \0\0\0\0", numbers.as_flattened()].concat()
        };
        let colours = [
            colour([0.436, 0.2225, 0.0139]),
            colour([0.3851, 0.7169, 0.0971]),
            colour([0.1431, 0.0606, 0.7139]),
        ];
        let tags =
            [(b"rXYZ", &colours[0][..]), (b"gXYZ", &colours[1]), (b"bXYZ", &colours[2]), (b"gTRC", curve)];
        let mut bytes = vec![0; 128];
        bytes.extend((tags.len() as u32).to_be_bytes());
        let mut at = bytes.len() + 12 * tags.len();
        for (name, data) in tags {
            bytes.extend_from_slice(name);
            bytes.extend((at as u32).to_be_bytes());
            bytes.extend((data.len() as u32).to_be_bytes());
            at += data.len();
        }
        tags.iter().for_each(|(_, data)| bytes.extend_from_slice(data));
        bytes
    }

    const SRGB: Primaries = [[0.4360, 0.2225, 0.0139], [0.3851, 0.7169, 0.0971], [0.1431, 0.0606, 0.7139]];

    #[test]
    fn curves_of_every_form_are_read() {
        let fixed = |v: f64| ((v * 65_536.0).round() as i32).to_be_bytes();
        let srgb = [2.4, 1.0 / 1.055, 0.055 / 1.055, 1.0 / 12.92, 0.04045].map(fixed);
        let parametric = [&b"para\0\0\0\0\0\x03\0\0"[..], srgb.as_flattened()].concat();
        let gamma = b"curv\0\0\0\0\0\0\0\x01\x02\x33";
        let table = b"curv\0\0\0\0\0\0\0\x03\0\0\x36\xcb\xff\xff";
        let even = b"curv\0\0\0\0\0\0\0\x02\0\0\xff\xff";
        for (curve, expected) in [
            (&parametric[..], 0.21404),
            (gamma, 0.21776),
            (table, 0.21404),
            (even, 0.5),
            (b"curv\0\0\0\0\0\0\0\0", 0.5),
        ] {
            let icc = Icc::read(&profile(curve)).unwrap();
            assert!(icc.is(&SRGB, expected), "{icc:?}");
            assert!(!icc.is(&SRGB, expected + 0.002));
        }
    }

    #[test]
    fn other_primaries_and_damage_are_seen() {
        let whole = profile(b"curv\0\0\0\0\0\0\0\0");
        let mut other = SRGB;
        other[2][2] += 0.01;
        assert!(!Icc::read(&whole).unwrap().is(&other, 0.5));
        for cut in 0..whole.len() - 8 {
            assert_eq!(Icc::read(&whole[..cut]), None, "{cut}");
        }
    }
}
