//! Blend parameters: opacity, mode, and which masks confine a module's effect.
//!
//! The block has 420 bytes since version 11 (darktable 4.2), which is what is written: every later darktable
//! takes it. Versions 12 to 14 are read; they differ in how an inverted drawn mask is spelt (12) and in a
//! choice of feathering (14). What a [`Blend`] cannot say is kept whole beside it.
//!
//! A channel's corners go from 0 to 1 and are multiplied by two to the power of its boost. darktable's default is 0,
//! but log2(0.01) for the brightness and chroma channels (Jz, Cz) of the scene-referred space, where white is about
//! 0.0176. The slope between two corners is at least 0.001 wide after that.

use serde::Deserialize;

use crate::layout::BlendSpace;
use crate::params::no_negative_zero;
use crate::state::{Blend, ChannelRange, OpaqueBlend};
use base::error::{Coded, ErrorCode};

/// The version that is written.
pub(crate) const VERSION: u32 = 11;

/// "Normal" blending.
pub(crate) const MODE_NORMAL: u32 = 0x18;

/// "Multiply".
const MODE_MULTIPLY: u32 = 0x04;

/// By how many EV L* = 50 is darker than white: log2 of (116 / (50 + 16))³.
const GREY_FULCRUM: f32 = 2.440_8;

/// The luminance in front of a module, white being 1: the first channel of the scene-referred space.
const LUMINANCE_IN: u8 = 0;

/// How a module's picture is laid over the one that it was given, where it is not to take its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Scene light is multiplied by how much brighter or darker than L* = 50 the layer is, so that such a grey changes
    /// nothing. It fades out towards white, beyond which a module that makes such a layer sees no differences.
    GreyMultiplies,
}

impl Layer {
    /// The space in which it blends.
    pub fn space(self) -> BlendSpace {
        match self {
            Self::GreyMultiplies => BlendSpace::RgbScene,
        }
    }

    /// A blend in that space with the layer's mode. A mask that has to do with luminance says itself how far up the
    /// layer acts; so does one that adds its parts, to which another would be added.
    pub fn over(self, mut blend: Blend) -> Blend {
        match self {
            Self::GreyMultiplies => {
                let below_white = ChannelRange {
                    boost: None,
                    from: 0.0,
                    full_from: 0.0,
                    full_to: 0.5,
                    inverted: false,
                    to: 0.95,
                };
                if blend.combine & INCLUSIVE == 0 {
                    blend.ranges.entry(LUMINANCE_IN).or_insert(below_white);
                }
                Blend { fulcrum: GREY_FULCRUM, mode: MODE_MULTIPLY, ..blend }
            }
        }
    }
}

const SIZE: usize = 420;
const CHANNELS: u8 = 16;
/// Where each channel's four corner values begin.
const RANGES_AT: usize = 68;
const BOOSTS_AT: usize = 324;
const RASTER_SOURCE_AT: usize = 388;
const RASTER_INVERT_AT: usize = 416;

// Bits of `mask_mode`.
const ON: u32 = 1;
const DRAWN: u32 = 2;
const PARAMETRIC: u32 = 4;

/// The bit of `combine` by which a parametric mask adds to the drawn one, and its channels to each other, instead of
/// confining it.
pub const INCLUSIVE: u32 = 2;

/// A channel that selects everything.
const NEUTRAL: [f32; 4] = [0.0, 0.0, 1.0, 1.0];
/// log2(0.01) as darktable rounds it.
const SCENE_BOOST: f32 = -6.643_856;

/// A block as it goes into a sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// `blendop_version`.
    pub version: u32,
    /// `blendop_params`.
    pub bytes: Vec<u8>,
}

/// Uniform, full, normal blending in `space`: the base from which masked instances are made.
pub fn normal(space: BlendSpace) -> Blend {
    Blend {
        brightness: 0.0,
        colorspace: space as i32,
        combine: 0,
        contrast: 0.0,
        details: 0.0,
        feathering_guide: 5,
        feathering_radius: 0.0,
        fulcrum: 0.0,
        mask_id: None,
        mask_blur: 0.0,
        mode: MODE_NORMAL,
        opacity: 100.0,
        ranges: std::collections::BTreeMap::new(),
        opaque: None,
    }
}

/// The same mask over a result that simply takes the picture's place.
pub fn plain(blend: &Blend) -> Blend {
    Blend { fulcrum: 0.0, mode: MODE_NORMAL, ..blend.clone() }
}

/// Holds a new blend to the bounds of darktable's controls; [`encode`] itself refuses only what is not finite
/// or has no place in the block.
///
/// # Errors
/// [`BlendError`] names the field that is out of bounds.
pub fn check(blend: &Blend) -> Result<(), BlendError> {
    let bounds = [
        ("opacity", blend.opacity, 0.0, 100.0),
        ("contrast", blend.contrast, -1.0, 1.0),
        ("brightness", blend.brightness, -1.0, 1.0),
        ("details", blend.details, -1.0, 1.0),
        ("feathering_radius", blend.feathering_radius, 0.0, 250.0),
        ("mask_blur", blend.mask_blur, 0.0, 100.0),
    ];
    for (field, value, min, max) in bounds {
        if !(min..=max).contains(&value) {
            return Err(BlendError::OutOfRange { field, value, min, max });
        }
    }
    for (channel, range) in &blend.ranges {
        let corners = [range.from, range.full_from, range.full_to, range.to];
        if *channel >= CHANNELS || !corners.is_sorted() || corners.iter().any(|v| !(0.0..=1.0).contains(v)) {
            return Err(BlendError::Channel { channel: *channel });
        }
    }
    Ok(())
}

/// The block of a blend; `None` is darktable's "off", as its own default for a module that blends in `space`.
///
/// # Errors
/// [`BlendError`] for what is not finite, or has no place in the block.
pub fn encode(blend: Option<&Blend>, space: BlendSpace) -> Result<Block, BlendError> {
    let Some(blend) = blend else {
        return Ok(Block { version: VERSION, bytes: bytes(&normal(space), 0) });
    };
    if let Some(opaque) = &blend.opaque {
        let bytes = base::ids::unhex(&opaque.hex).ok_or(BlendError::Hex)?;
        return Ok(Block { version: opaque.version, bytes });
    }
    let scalars = [
        blend.brightness,
        blend.contrast,
        blend.details,
        blend.feathering_radius,
        blend.fulcrum,
        blend.mask_blur,
        blend.opacity,
    ];
    let corners =
        blend.ranges.values().flat_map(|r| [r.from, r.full_from, r.full_to, r.to, r.boost.unwrap_or(0.0)]);
    if scalars.into_iter().chain(corners).any(|v| !v.is_finite()) {
        return Err(BlendError::NotFinite);
    }
    if let Some(channel) = blend.ranges.keys().find(|c| **c >= CHANNELS) {
        return Err(BlendError::Channel { channel: *channel });
    }
    let drawn = if blend.mask_id.is_some() { DRAWN } else { 0 };
    let parametric = if blend.ranges.is_empty() { 0 } else { PARAMETRIC };
    Ok(Block { version: VERSION, bytes: bytes(blend, ON | drawn | parametric) })
}

fn bytes(blend: &Blend, mask_mode: u32) -> Vec<u8> {
    let mut blendif = 0_u32;
    let mut ranges = [NEUTRAL; CHANNELS as usize];
    let mut boosts: [f32; CHANNELS as usize] =
        std::array::from_fn(|channel| default_boost(blend.colorspace, channel));
    if blend.combine & INCLUSIVE != 0 && !blend.ranges.is_empty() {
        // darktable turns every channel's polarity round then: an idle one would select nothing instead of all.
        blendif |= channels(blend.colorspace) << 16;
    }
    for (channel, range) in &blend.ranges {
        blendif |= 1 << channel;
        let polarity = 1 << (channel + 16);
        blendif = if range.inverted { blendif | polarity } else { blendif & !polarity };
        if let (Some(slot), Some(boost)) = (boosts.get_mut(usize::from(*channel)), range.boost) {
            *slot = boost;
        }
        if let Some(slot) = ranges.get_mut(usize::from(*channel)) {
            *slot = [range.from, range.full_from, range.full_to, range.to];
        }
    }
    let mut out = Vec::with_capacity(SIZE);
    let mut put = |word: [u8; 4]| out.extend_from_slice(&word);
    put(mask_mode.to_le_bytes());
    put(blend.colorspace.to_le_bytes());
    put(blend.mode.to_le_bytes());
    put(blend.fulcrum.to_le_bytes());
    put(blend.opacity.to_le_bytes());
    put(blend.combine.to_le_bytes());
    put(blend.mask_id.unwrap_or(0).to_le_bytes());
    put(blendif.to_le_bytes());
    put(blend.feathering_radius.to_le_bytes());
    put(blend.feathering_guide.to_le_bytes());
    for value in [blend.mask_blur, blend.contrast, blend.brightness, blend.details] {
        put(value.to_le_bytes());
    }
    out.extend_from_slice(&[0; 12]);
    for value in ranges.as_flattened() {
        out.extend_from_slice(&value.to_le_bytes());
    }
    for boost in boosts {
        out.extend_from_slice(&boost.to_le_bytes());
    }
    out.resize(SIZE, 0);
    out
}

/// The channels that a blend space has, as bits.
fn channels(colorspace: i32) -> u32 {
    match colorspace {
        _ if colorspace == BlendSpace::Lab as i32 => 0x3377,
        _ if colorspace == BlendSpace::RgbDisplay as i32 || colorspace == BlendSpace::RgbScene as i32 => {
            0x77ff
        }
        _ => 0,
    }
}

/// darktable's boost factor for a channel unless a person moved it.
fn default_boost(colorspace: i32, channel: usize) -> f32 {
    let scene = colorspace == BlendSpace::RgbScene as i32;
    if scene && matches!(channel, 8 | 9 | 12 | 13) { SCENE_BOOST } else { 0.0 }
}

/// Reads a block. "Off" is `None`; what the fields of [`Blend`] cannot say is kept in `opaque`.
///
/// # Errors
/// [`BlendError`] for a block of version 11 to 14 that does not have 420 bytes: other versions have other sizes,
/// and are darktable's to upgrade.
pub fn decode(version: u32, bytes: &[u8]) -> Result<Option<Blend>, BlendError> {
    let opaque = || Some(OpaqueBlend { hex: base::ids::hex(bytes), version });
    if !(11..=14).contains(&version) {
        return Ok(Some(Blend { opaque: opaque(), ..normal(BlendSpace::None) }));
    }
    if bytes.len() != SIZE {
        return Err(BlendError::Size { version, found: bytes.len() });
    }
    let float = |at: usize| f32::from_le_bytes(word(bytes, at));
    let uint = |at: usize| u32::from_le_bytes(word(bytes, at));
    let int = |at: usize| i32::from_le_bytes(word(bytes, at));
    // A value that is no number makes the block opaque; the field then shows 0.
    let readable = |at: usize| if float(at).is_finite() { no_negative_zero(float(at)) } else { 0.0 };

    let mask_mode = uint(0);
    let mask_id = int(24);
    if mask_mode & ON == 0 && mask_id == 0 {
        return Ok(None);
    }
    let blendif = uint(28);
    let mut blend = Blend {
        brightness: readable(48),
        colorspace: int(4),
        combine: uint(20),
        contrast: readable(44),
        details: readable(52),
        feathering_guide: uint(36),
        feathering_radius: readable(32),
        fulcrum: readable(12),
        mask_id: (mask_mode & DRAWN != 0).then_some(mask_id),
        mask_blur: readable(40),
        mode: uint(8),
        opacity: readable(16),
        ranges: std::collections::BTreeMap::new(),
        opaque: None,
    };
    for channel in 0..CHANNELS {
        if mask_mode & PARAMETRIC != 0 && blendif >> channel & 1 == 1 {
            let at = RANGES_AT + 16 * usize::from(channel);
            let boost = readable(BOOSTS_AT + 4 * usize::from(channel));
            let range = ChannelRange {
                boost: (boost != default_boost(blend.colorspace, usize::from(channel))).then_some(boost),
                from: readable(at),
                full_from: readable(at + 4),
                full_to: readable(at + 8),
                inverted: blendif >> (channel + 16) & 1 == 1,
                to: readable(at + 12),
            };
            blend.ranges.insert(channel, range);
        }
    }
    if !is_expressed(&blend, version, bytes) {
        blend.opaque = opaque();
    }
    Ok(Some(blend))
}

/// Whether writing `blend` as version 11 has the effect of these bytes.
///
/// It has when the bytes come out the same, apart from what has no effect: the boost of an idle channel, the
/// raster mask's numbers when there is no raster mask, the feathering choice when nothing is feathered.
fn is_expressed(blend: &Blend, version: u32, found: &[u8]) -> bool {
    let Ok(block) = encode(Some(blend), BlendSpace::None) else { return false };
    let mut same = found.to_vec();
    let mut clear = |from: usize, to: usize, like: &[u8]| {
        if let (Some(target), Some(source)) = (same.get_mut(from..to), like.get(from..to)) {
            target.copy_from_slice(source);
        }
    };
    for channel in (0..CHANNELS).filter(|c| !blend.ranges.contains_key(c)) {
        let at = BOOSTS_AT + 4 * usize::from(channel);
        clear(at, at + 4, &block.bytes);
    }
    if found.get(RASTER_SOURCE_AT) == Some(&0) {
        clear(RASTER_SOURCE_AT, RASTER_INVERT_AT, &block.bytes);
    }
    if blend.feathering_radius == 0.0 {
        clear(56, 60, &block.bytes);
    }
    // Version 12 spells the inversion of a drawn mask with another bit, and takes the old one away on upgrade.
    let respelt = version >= 12 && blend.mask_id.is_some() && blend.combine & 1 != 0;
    !respelt && equal_but_for_zeros(&same, &block.bytes)
}

/// Byte equality, where −0.0 equals 0.0.
fn equal_but_for_zeros(a: &[u8], b: &[u8]) -> bool {
    let words = |bytes: &[u8]| bytes.len() / 4;
    words(a) == words(b)
        && (0..words(a)).all(|i| {
            let (a, b) = (word(a, 4 * i), word(b, 4 * i));
            let is_float = !matches!(i, 0..=2 | 5..=7 | 9) && i < RASTER_SOURCE_AT / 4;
            a == b || is_float && a == (-0.0_f32).to_le_bytes() && b == [0; 4]
        })
}

/// Four bytes at `at`; zeros beyond the end, which a checked block does not have.
fn word(bytes: &[u8], at: usize) -> [u8; 4] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; 4])
}

/// Why blend parameters cannot be written or read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BlendError {
    /// The block is not as long as its version demands.
    #[error("a blend block of version {version} has {SIZE} bytes, not {found}")]
    Size {
        /// `blendop_version`.
        version: u32,
        /// Bytes given.
        found: usize,
    },
    /// NaN or an infinity.
    #[error("the blend holds a value that is not a finite number")]
    NotFinite,
    /// A new setting is beyond its control's bounds.
    #[error("the blend's {field} cannot be {value}: the legal range is {min} to {max}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// What was given.
        value: f32,
        /// The least legal value.
        min: f32,
        /// The greatest legal value.
        max: f32,
    },
    /// A parametric channel that does not exist, or whose corners are not ascending within 0 to 1.
    #[error("the parametric channel {channel} is not one of 0 to 15 with four ascending corners from 0 to 1")]
    Channel {
        /// Its number.
        channel: u8,
    },
    /// A kept block is not hexadecimal.
    #[error("the kept blend block is not hexadecimal")]
    Hex,
}

impl Coded for BlendError {
    fn code(&self) -> ErrorCode {
        ErrorCode::MaskingError
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patched(at: usize, value: [u8; 4]) -> Vec<u8> {
        let mut bytes = encode(Some(&normal(BlendSpace::RgbScene)), BlendSpace::None).unwrap().bytes;
        bytes[at..at + 4].copy_from_slice(&value);
        bytes
    }

    #[test]
    fn off_is_darktables_own_default_and_reads_as_nothing() {
        let off = encode(None, BlendSpace::RgbScene).unwrap();
        assert_eq!((off.version, off.bytes.len()), (11, 420));
        assert_eq!(decode(11, &off.bytes).unwrap(), None);
        assert_eq!(word(&off.bytes, BOOSTS_AT + 32), SCENE_BOOST.to_le_bytes());
        // A switched-off mask that is still attached is a person's work, and kept.
        let mut attached = off.bytes;
        attached[24] = 7;
        assert!(decode(11, &attached).unwrap().unwrap().opaque.is_some());
    }

    #[test]
    fn what_the_fields_cannot_say_is_kept_whole() {
        for (at, value) in [
            (0, 8_u32.to_le_bytes()),           // raster mask, but not on
            (0, 9_u32.to_le_bytes()),           // raster mask
            (0, 5_u32.to_le_bytes()),           // parametric without a channel
            (60, 1_u32.to_le_bytes()),          // reserved
            (RANGES_AT, 0.5_f32.to_le_bytes()), // an idle channel's corners
            (16, f32::NAN.to_le_bytes()),       // not a number
            (RASTER_SOURCE_AT, *b"expo"),       // a raster source
        ] {
            let bytes = patched(at, value);
            let Some(blend) = decode(11, &bytes).unwrap() else {
                assert_eq!(value, 8_u32.to_le_bytes());
                continue;
            };
            assert!(blend.opaque.is_some(), "{at}");
            let again = encode(Some(&blend), BlendSpace::None).unwrap();
            assert_eq!(again.bytes, bytes, "{at}");
            serde_json::from_slice::<Blend>(&serde_json::to_vec(&blend).unwrap()).unwrap();
        }
    }

    #[test]
    fn what_has_no_effect_does_not_make_a_block_opaque() {
        for (at, value) in [
            (BOOSTS_AT + 32, 0.0_f32.to_le_bytes()),
            (408, (-1_i32).to_le_bytes()),
            (412, (-1_i32).to_le_bytes()),
            (56, 1_u32.to_le_bytes()),
            (44, (-0.0_f32).to_le_bytes()),
        ] {
            assert_eq!(
                decode(14, &patched(at, value)).unwrap().unwrap(),
                normal(BlendSpace::RgbScene),
                "{at}"
            );
        }
        let mut feathered = normal(BlendSpace::RgbScene);
        feathered.feathering_radius = 10.0;
        let mut bytes = encode(Some(&feathered), BlendSpace::None).unwrap().bytes;
        bytes[56] = 1;
        assert!(decode(14, &bytes).unwrap().unwrap().opaque.is_some());
    }

    #[test]
    fn the_old_spelling_of_an_inverted_drawn_mask_is_plain_in_version_11_only() {
        let blend = Blend { mask_id: Some(5), combine: 1, ..normal(BlendSpace::Lab) };
        let bytes = encode(Some(&blend), BlendSpace::None).unwrap().bytes;
        assert_eq!(decode(11, &bytes).unwrap().unwrap(), blend);
        assert!(decode(13, &bytes).unwrap().unwrap().opaque.is_some());
    }

    #[test]
    fn an_inclusive_mask_turns_idle_channels_round_as_darktable_does() {
        let full = ChannelRange {
            boost: Some(2.0),
            from: 0.1,
            full_from: 0.2,
            full_to: 0.6,
            inverted: false,
            to: 0.7,
        };
        let blend = |inverted| Blend {
            combine: INCLUSIVE,
            ranges: [(0, ChannelRange { inverted, ..full })].into(),
            ..normal(BlendSpace::RgbScene)
        };
        for (inverted, blendif) in [(false, 0x77fe_0001_u32), (true, 0x77ff_0001)] {
            let bytes = encode(Some(&blend(inverted)), BlendSpace::None).unwrap().bytes;
            assert_eq!(word(&bytes, 28), blendif.to_le_bytes());
            assert_eq!(word(&bytes, BOOSTS_AT), 2.0_f32.to_le_bytes());
            assert_eq!(decode(11, &bytes).unwrap().unwrap(), blend(inverted));
        }
    }

    #[test]
    fn wrong_sizes_and_values_are_refused_and_other_versions_are_kept() {
        assert_eq!(decode(11, &[0; 419]), Err(BlendError::Size { version: 11, found: 419 }));
        let old = decode(8, &[1, 2, 3]).unwrap().unwrap();
        assert_eq!(encode(Some(&old), BlendSpace::None).unwrap(), Block { version: 8, bytes: vec![1, 2, 3] });
        let nan = Blend { opacity: f32::NAN, ..normal(BlendSpace::Lab) };
        assert_eq!(encode(Some(&nan), BlendSpace::None), Err(BlendError::NotFinite));
        assert!(check(&Blend { opacity: 100.5, ..normal(BlendSpace::Lab) }).is_err());
        let backwards =
            ChannelRange { boost: None, from: 0.5, full_from: 0.4, full_to: 0.6, inverted: false, to: 0.7 };
        let ranges = [(0, backwards)].into();
        assert!(check(&Blend { ranges, ..normal(BlendSpace::Lab) }).is_err());
    }

    #[test]
    fn a_layer_keeps_off_the_highlights_unless_the_mask_says_where_it_acts() {
        let plain = normal(BlendSpace::RgbScene);
        let layer = Layer::GreyMultiplies.over(plain.clone());
        assert_eq!((layer.mode, layer.ranges[&LUMINANCE_IN].to), (MODE_MULTIPLY, 0.95));
        let grey = ((50.0_f32 + 16.0) / 116.0).powi(3);
        assert!((layer.fulcrum.exp2() * grey - 1.0).abs() < 1e-4);
        let mine =
            ChannelRange { boost: None, from: 0.4, full_from: 0.5, full_to: 1.0, inverted: false, to: 1.0 };
        let masked = Blend { ranges: [(LUMINANCE_IN, mine)].into(), ..plain.clone() };
        assert_eq!(Layer::GreyMultiplies.over(masked.clone()).ranges, masked.ranges);
        let adding = Blend { combine: INCLUSIVE, ..plain };
        assert_eq!(Layer::GreyMultiplies.over(adding).ranges.len(), 0);
    }

    fn blends() -> impl Strategy<Value = Blend> {
        let boost = prop::option::of(0.5f32..4.0);
        let range =
            (prop::array::uniform4(0f32..=1.0), boost, any::<bool>()).prop_map(|(v, boost, inverted)| {
                ChannelRange { boost, from: v[0], full_from: v[1], full_to: v[2], inverted, to: v[3] }
            });
        (
            (0f32..=100.0, -1f32..=1.0, 0f32..50.0, 0f32..50.0),
            (0i32..5, 0u32..8, any::<u32>(), -3f32..3.0),
            prop::option::of(any::<i32>()),
            prop::collection::btree_map(0u8..16, range, 0..4),
        )
            .prop_map(
                |(
                    (opacity, contrast, radius, blur),
                    (colorspace, combine, mode, fulcrum),
                    mask_id,
                    ranges,
                )| Blend {
                    fulcrum,
                    opacity,
                    contrast,
                    feathering_radius: radius,
                    mask_blur: blur,
                    colorspace,
                    combine,
                    mode,
                    mask_id,
                    ranges,
                    ..normal(BlendSpace::None)
                },
            )
    }

    proptest! {
        #[test]
        fn every_blend_reads_back(blend in blends()) {
            let block = encode(Some(&blend), BlendSpace::None).unwrap();
            prop_assert_eq!(decode(block.version, &block.bytes).unwrap(), Some(blend));
        }

        #[test]
        fn any_420_bytes_read_to_something_that_writes_back(
            seed in prop::collection::vec(any::<u8>(), SIZE), version in 11u32..15
        ) {
            if let Some(blend) = decode(version, &seed).unwrap() {
                let block = encode(Some(&blend), BlendSpace::None).unwrap();
                prop_assert_eq!(decode(block.version, &block.bytes).unwrap(), Some(blend));
            }
        }
    }
}
