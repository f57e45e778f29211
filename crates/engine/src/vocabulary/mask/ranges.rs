//! Ranges of lightness, chroma and hue, and their way to darktable's parametric channels.
//!
//! - **Lightness** is CIE L* as seen on the untouched photo: see [`super::tone`]. It becomes the `g` channel
//!   (luminance) of a module that blends scene light, the `L` channel of one that blends Lab. Not `Jz`, whose
//!   brightness differs from L* by up to ten units with the hue.
//! - **Chroma** is CIE C*: in Lab the channel itself. A module that blends scene light has `Cz` (JzAzBz), which of
//!   one C* is 3.6 times as much in the light as in the dark, and a range cannot hang on another channel. So it is
//!   right at one lightness: in the middle of the mask's range of luminance, or at L* 50. `docs/masks.md` has a table
//!   of how far it is off elsewhere. Lab would not be, but darktable would then take the whole picture to Lab and
//!   back around such a module, and mix its strength there.
//! - **Hue** is an angle on the HSV circle. A channel knows another circle, on which a colour of middling saturation
//!   marks each angle's place. Greys are left out by chroma.
//!
//! Formulas: CIE 15 (Lab), IEC 61966-2-1 (sRGB), Safdar et al. 2017 (JzAzBz).

use crate::vocabulary::mask::spec::RangeKind;
use crate::vocabulary::mask::tone::{Tones, lightness, luminance};
use darktable::layout::BlendSpace;
use darktable::state::ChannelRange;

/// A range with every number in place and checked: full effect from `from` to `to`, none `softness` beyond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub kind: RangeKind,
    pub from: f64,
    pub to: f64,
    pub softness: f64,
}

/// The lightness at which a range of chroma is right, unless the mask has a range of luminance.
pub(crate) const MIDDLE: f64 = 50.0;

/// The chroma at which the channels' units are compared with C*.
const COMPARED: f64 = 10.0;

/// The width of darktable's Lab chroma channel: the diagonal of a quarter of the a-b plane.
const LAB_CHROMA: f64 = 181.019_336;

/// The chroma below which a colour counts as grey, whose hue is noise: none at the first less the softness, full at
/// the first.
const GREY: Range = Range { kind: RangeKind::Chroma, from: 8.0, to: 100.0, softness: 4.0 };

/// The same for greens. Dark leaves have little chroma; and daylight, shade and lamps make grey things blue or
/// orange, hardly ever green.
const GREEN_GREY: Range = Range { from: 4.0, softness: 2.0, ..GREY };

/// The hues whose middle makes a range one of greens.
const GREENS: std::ops::RangeInclusive<f64> = 60.0..=180.0;

impl Range {
    /// What keeps greys out of this range of hues.
    pub(crate) fn grey(&self) -> Self {
        let middle = (self.from + 0.5 * (self.to - self.from).rem_euclid(360.0)).rem_euclid(360.0);
        if GREENS.contains(&middle) { GREEN_GREY } else { GREY }
    }

    /// The middle of what a range of luminance lets through; `None` where that is not one piece.
    pub(crate) fn middle(&self, inverted: bool) -> Option<f64> {
        let (from, to) = match (inverted, self.from <= 0.0, self.to >= 100.0) {
            _ if self.kind != RangeKind::Luminance => return None,
            (false, ..) => (self.from, self.to),
            (true, true, _) => (self.to, 100.0),
            (true, _, true) => (0.0, self.from),
            (true, ..) => return None,
        };
        Some(0.5 * (from + to))
    }

    /// The channel of a blend space, and what to set it to. `seen` is the lightness at which chroma is to be right.
    pub(crate) fn channel(&self, space: BlendSpace, tones: &Tones, seen: f64) -> Option<(u8, ChannelRange)> {
        let lab = match space {
            BlendSpace::Lab => true,
            BlendSpace::RgbScene => false,
            BlendSpace::None | BlendSpace::Raw | BlendSpace::RgbDisplay => return None,
        };
        let place = |channels: [u8; 2]| if lab { channels[0] } else { channels[1] };
        Some(match self.kind {
            RangeKind::Luminance => {
                let light = |value: f64| tones.luminance(value);
                let value = |value: f64| if lab { lightness(light(value)) / 100.0 } else { light(value) };
                (place([0, 0]), self.open(value, 0.0))
            }
            RangeKind::Chroma => {
                let unit = unit(tones, seen, lab);
                let usual = if lab { 0.0 } else { -6.643_856 };
                (place([8, 9]), self.open(|value| value * unit, usual))
            }
            RangeKind::Hue => (place([9, 10]), self.circle(|degrees| place_of(degrees, lab))),
        })
    }

    /// A range on a straight scale: 0 and 100 are open ends. `usual` is the boost that the channel has anyway.
    fn open(&self, value: impl Fn(f64) -> f64, usual: f64) -> ChannelRange {
        let open_end = self.to >= 100.0;
        // A tone curve reaches its white far out, or never.
        let at = |end: f64| if end <= 0.0 { 0.0 } else { value(end.min(99.0)) };
        let corners = [self.from - self.softness, self.from, self.to, self.to + self.softness].map(at);
        let greatest = if open_end { corners[1] } else { corners[3] };
        // Unless the usual one does, the least whole power of two that has room for all corners.
        let boost = if greatest <= usual.exp2() { usual } else { greatest.log2().ceil() };
        let [from, full_from, full_to, to] = corners.map(|corner| rounded(corner / boost.exp2()));
        let [full_to, to] = if open_end { [1.0, 1.0] } else { [full_to, to] };
        let boost = (boost != usual).then_some(boost as f32);
        ChannelRange { boost, from, full_from, full_to, inverted: false, to }
    }

    /// A range on a circle, of which `place` is the share of the way round.
    fn circle(&self, place: impl Fn(f64) -> f64) -> ChannelRange {
        let way = |from: f64, to: f64| (place(to.rem_euclid(360.0)) - place(from)).rem_euclid(1.0);
        let full_from = place(self.from);
        let from =
            full_from - (full_from - place((self.from - self.softness).rem_euclid(360.0))).rem_euclid(1.0);
        let full_to = full_from + way(self.from, self.to);
        let to = full_to + way(self.to, self.to + self.softness);
        // The channel's seam is at 0. A range across it is the inverse of what it leaves out; a soft edge across it
        // ends at the seam.
        let (corners, inverted) = if full_to < 1.0 {
            ([from.max(0.0), full_from, full_to, to.min(1.0)], false)
        } else {
            ([full_to - 1.0, (to - 1.0).min(from), from, full_from], true)
        };
        let [from, full_from, full_to, to] = corners.map(rounded);
        ChannelRange { boost: None, from, full_from, full_to, inverted, to }
    }
}

/// What a channel of chroma shows for one unit of C*, the mean of all hues, of colours that are seen this light.
fn unit(tones: &Tones, seen: f64, lab: bool) -> f64 {
    const HUES: u32 = 12;
    let seen = seen.clamp(5.0, 95.0);
    // The same surface under more light has more of it.
    let light = tones.luminance(seen) / luminance(seen);
    let chroma = |hue: u32| {
        let (b, a) = (f64::from(hue) / f64::from(HUES) * std::f64::consts::TAU).sin_cos();
        let colour = from_lab([seen, COMPARED * a, COMPARED * b]).map(|value| value * light);
        let [_, a, b] = if lab { cie_lab(colour) } else { jz(colour) };
        a.hypot(b)
    };
    let mean = (0..HUES).map(chroma).sum::<f64>() / f64::from(HUES) / COMPARED;
    if lab { mean / LAB_CHROMA } else { mean }
}

/// To what a state keeps of it, so that the last bits of a machine's arithmetic do not show.
fn rounded(share: f64) -> f32 {
    ((share.clamp(0.0, 1.0) * 1e6).round() / 1e6) as f32
}

/// The share of the way round a channel's hue circle at which an HSV hue lies.
fn place_of(degrees: f64, lab: bool) -> f64 {
    let colour = xyz(hsv(degrees));
    let (_, turn) = if lab { hue(cie_lab(colour)) } else { hue(jz(colour)) };
    turn
}

/// Lightness of a colour, and the share of the way round at which its hue lies.
fn hue([lightness, a, b]: [f64; 3]) -> (f64, f64) {
    (lightness, (b.atan2(a) / std::f64::consts::TAU).rem_euclid(1.0))
}

/// A colour of this hue, in linear sRGB: saturation 0.6, value 0.75.
fn hsv(degrees: f64) -> [f64; 3] {
    [5.0, 3.0, 1.0].map(|shift| {
        let k = (shift + degrees / 60.0).rem_euclid(6.0);
        let code = 0.75 * (1.0 - 0.6 * k.min(4.0 - k).clamp(0.0, 1.0));
        ((code + 0.055) / 1.055).powf(2.4)
    })
}

/// Linear sRGB to XYZ, D65.
fn xyz(rgb: [f64; 3]) -> [f64; 3] {
    product(
        [
            [0.412_456_4, 0.357_576_1, 0.180_437_5],
            [0.212_672_9, 0.715_152_2, 0.072_175_0],
            [0.019_333_9, 0.119_192_0, 0.950_304_1],
        ],
        rgb,
    )
}

/// XYZ (D65) to CIE Lab.
fn cie_lab([x, y, z]: [f64; 3]) -> [f64; 3] {
    let [x, y, z] = [x / 0.950_47, y, z / 1.088_83].map(|light| (lightness(light) + 16.0) / 116.0);
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

/// CIE Lab to XYZ (D65).
fn from_lab([l, a, b]: [f64; 3]) -> [f64; 3] {
    let y = (l + 16.0) / 116.0;
    let light = |root: f64| luminance(116.0 * root - 16.0);
    [0.950_47 * light(y + a / 500.0), light(y), 1.088_83 * light(y - b / 200.0)]
}

/// XYZ (D65), with white at 1, to JzAzBz.
fn jz([x, y, z]: [f64; 3]) -> [f64; 3] {
    let cones = product(
        [
            [0.414_789_72, 0.579_999, 0.014_648],
            [-0.201_51, 1.120_649, 0.053_100_8],
            [-0.016_600_8, 0.264_8, 0.668_479_9],
        ],
        [1.15 * x - 0.15 * z, 0.66 * y + 0.34 * x, z],
    );
    let [l, m, s] = cones.map(|cone| {
        let v = (cone.max(0.0) / 10_000.0).powf(2610.0 / 16_384.0);
        ((3424.0 / 4096.0 + 2413.0 / 128.0 * v) / (1.0 + 2392.0 / 128.0 * v)).powf(1.7 * 2523.0 / 32.0)
    });
    let i = 0.5 * (l + m);
    [
        0.44 * i / (1.0 - 0.56 * i) - 1.629_549_953_282_156_6e-11,
        3.524 * l - 4.066_708 * m + 0.542_708 * s,
        0.199_076 * l + 1.096_799 * m - 1.295_875 * s,
    ]
}

fn product(matrix: [[f64; 3]; 3], [x, y, z]: [f64; 3]) -> [f64; 3] {
    matrix.map(|[a, b, c]| a * x + b * y + c * z)
}

#[cfg(test)]
mod tests {
    use super::*;
    use darktable::state::EditState;

    /// A photo without a tone mapper or an exposure: what is seen is what is worked on.
    fn plain() -> Tones {
        Tones::of(&EditState::default(), "vignette")
    }

    fn channel(kind: RangeKind, ends: [f64; 3], space: BlendSpace) -> (u8, ChannelRange) {
        let [from, to, softness] = ends;
        Range { kind, from, to, softness }.channel(space, &plain(), MIDDLE).unwrap()
    }

    #[test]
    fn luminance_is_the_light_of_that_lightness_and_its_ends_are_open() {
        let (channel_number, range) = channel(RangeKind::Luminance, [40.0, 60.0, 10.0], BlendSpace::RgbScene);
        assert_eq!((channel_number, range.boost, range.inverted), (0, None, false));
        let found = [range.from, range.full_from, range.full_to, range.to];
        for (found, lightness) in found.into_iter().zip([30.0, 40.0, 60.0, 70.0]) {
            assert!((f64::from(found) - luminance(lightness)).abs() < 1e-5, "{found} {lightness}");
        }
        let (_, lab) = channel(RangeKind::Luminance, [40.0, 60.0, 10.0], BlendSpace::Lab);
        assert_eq!([lab.from, lab.full_from, lab.full_to, lab.to], [0.3, 0.4, 0.6, 0.7]);
        let (_, open) = channel(RangeKind::Luminance, [0.0, 100.0, 10.0], BlendSpace::Lab);
        assert_eq!([open.from, open.full_from, open.full_to, open.to], [0.0, 0.0, 1.0, 1.0]);
    }

    #[test]
    fn chroma_has_room_for_every_colour() {
        let (number, range) = channel(RangeKind::Chroma, [20.0, 40.0, 10.0], BlendSpace::RgbScene);
        assert_eq!((number, range.boost), (9, None));
        // By the published formulas C* 10 at L* 50 is a Cz of 0.00195; the channel goes to 0.01.
        assert!((f64::from(range.full_to) - 40.0 * 0.0195).abs() < 5e-3, "{range:?}");
        let (_, vivid) = channel(RangeKind::Chroma, [60.0, 90.0, 5.0], BlendSpace::RgbScene);
        assert_eq!(vivid.boost, Some(-5.0));
        assert!(vivid.to < 1.0 && vivid.from < vivid.full_from);
        let (number, lab) = channel(RangeKind::Chroma, [20.0, 40.0, 10.0], BlendSpace::Lab);
        assert!(number == 8 && (f64::from(lab.full_to) * LAB_CHROMA - 40.0).abs() < 1e-3);
    }

    #[test]
    fn chroma_is_right_at_the_lightness_that_a_mask_is_about() {
        let at = |seen: f64, space| {
            let range = Range { kind: RangeKind::Chroma, from: 10.0, to: 30.0, softness: 0.0 };
            f64::from(range.channel(space, &plain(), seen).unwrap().1.full_from)
        };
        // Cz of C* 10, against that at L* 50.
        for (seen, share) in [(15.0, 0.46), (25.0, 0.64), (65.0, 1.15), (90.0, 1.34)] {
            let found = at(seen, BlendSpace::RgbScene) / at(50.0, BlendSpace::RgbScene);
            assert!((found - share).abs() < 0.02, "{seen}: {found}");
            assert!((at(seen, BlendSpace::Lab) - 10.0 / LAB_CHROMA).abs() < 1e-5);
        }
        let luminance = |from, to| Range { kind: RangeKind::Luminance, from, to, softness: 5.0 };
        assert_eq!(luminance(0.0, 30.0).middle(false), Some(15.0));
        assert_eq!(luminance(0.0, 30.0).middle(true), Some(65.0));
        assert_eq!(luminance(30.0, 60.0).middle(true), None);
    }

    #[test]
    fn greens_keep_more_of_the_dark_than_other_hues() {
        let grey = |from, to| Range { kind: RangeKind::Hue, from, to, softness: 10.0 }.grey().from;
        assert_eq!([grey(75.0, 160.0), grey(195.0, 255.0), grey(345.0, 65.0)], [4.0, 8.0, 8.0]);
    }

    #[test]
    fn hues_lie_where_the_colours_do_and_wrap() {
        // Published JzAzBz and Lab angles of saturated sRGB colours, to a few degrees.
        for (degrees, in_jz, in_lab) in [(0.0, 31.0, 27.0), (120.0, 135.0, 139.0), (240.0, 272.0, 301.0)] {
            assert!(
                (place_of(degrees, false) * 360.0 - in_jz).abs() < 4.0,
                "{}",
                place_of(degrees, false) * 360.0
            );
            assert!(
                (place_of(degrees, true) * 360.0 - in_lab).abs() < 5.0,
                "{}",
                place_of(degrees, true) * 360.0
            );
        }
        // The way round is monotonic, so that corners stay in order.
        for lab in [false, true] {
            let places: Vec<f64> = (0..72).map(|at| place_of(f64::from(at) * 5.0, lab)).collect();
            let seams = (0..72).filter(|at| places[(at + 1) % 72] < places[*at]).count();
            assert_eq!(seams, 1);
        }
        for from in (0..360).step_by(15) {
            for (width, softness) in [(10, 15.0), (60, 15.0), (200, 15.0), (320, 18.0)] {
                let ends = [f64::from(from), f64::from((from + width) % 360), softness];
                for space in [BlendSpace::Lab, BlendSpace::RgbScene] {
                    let (_, range) = channel(RangeKind::Hue, ends, space);
                    let corners = [range.from, range.full_from, range.full_to, range.to];
                    assert!(
                        corners.is_sorted() && range.to <= 1.0 && range.from >= 0.0,
                        "{ends:?} {range:?}"
                    );
                    // The middle of the range is selected, what lies across is not.
                    let selected = |degrees: i32| {
                        let at =
                            place_of(f64::from(degrees).rem_euclid(360.0), space == BlendSpace::Lab) as f32;
                        (range.full_from..=range.full_to).contains(&at) != range.inverted
                    };
                    assert!(
                        selected(from + width / 2) && !selected(from + width / 2 + 180),
                        "{ends:?} {range:?}"
                    );
                }
            }
        }
    }
}
