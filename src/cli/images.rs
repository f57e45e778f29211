//! Pictures in a terminal that can show them: by the protocols of kitty and of iTerm2, else as half blocks, two pixels to
//! a character.
//!
//! Not by a crate: the usual one (viuer) needs another that is under the LGPL.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::imageops::FilterType;
use image::{DynamicImage, ImageFormat, RgbImage};

use super::failure::Failure;
use super::setup::App;
use crate::review::{ReviewModel, line};
use base::error::ErrorCode;

/// The most base64 in one piece of kitty's protocol.
const PIECE: usize = 4096;
/// Longest side of a picture that a terminal scales itself.
const LONGEST: u32 = 1024;
/// The widest picture in columns.
const WIDEST: usize = 100;

/// How a terminal shows pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Kitty,
    Iterm,
    /// Half blocks, in all colours or in those of a palette of 256.
    Blocks {
        all: bool,
    },
}

/// What a terminal says of itself in the environment. It is not asked, because an answer that comes late would stand in
/// the next command line.
fn way(variable: &dyn Fn(&str) -> Option<String>) -> Option<Way> {
    let of = |name: &str| variable(name).unwrap_or_default();
    let (term, program) = (of("TERM"), of("TERM_PROGRAM"));
    if term.is_empty() || term == "dumb" {
        return None;
    }
    // These two keep what they do not understand from the terminal around them.
    let inside = term.starts_with("screen") || term.starts_with("tmux") || !of("TMUX").is_empty();
    let kitty = !of("KITTY_WINDOW_ID").is_empty()
        || ["kitty", "ghostty"].iter().any(|name| term.contains(name) || program == *name);
    let iterm = ["iTerm.app", "WezTerm"].contains(&program.as_str()) || of("LC_TERMINAL") == "iTerm2";
    match (kitty && !inside, iterm && !inside) {
        (true, _) => Some(Way::Kitty),
        (_, true) => Some(Way::Iterm),
        _ if ["truecolor", "24bit"].contains(&of("COLORTERM").as_str()) => Some(Way::Blocks { all: true }),
        _ => term.contains("256color").then_some(Way::Blocks { all: false }),
    }
}

/// Shows the pictures of a session below each other, each under its name.
///
/// # Errors
/// `STATE_ERROR` for a picture that cannot be read.
pub fn show(app: &App, model: &ReviewModel) -> Result<(), Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let (Some((columns, rows)), Some(way)) = (app.output.screen(), way(&variable)) else {
        app.output
            .remark("pictures are shown only in a terminal with colours; `chemigram review` writes a page");
        return Ok(());
    };
    let before = model.baseline_preview.as_deref().map(|path| ("before".to_owned(), path));
    let branches = model.branches.iter().filter_map(|branch| {
        let score = branch.judged_score.map(|score| format!(" {score}/5")).unwrap_or_default();
        Some((format!("{}{score}", branch.branch), branch.preview.as_deref()?))
    });
    for (name, path) in before.into_iter().chain(branches) {
        let drawn =
            drawn(way, &read(path)?, columns.min(WIDEST), rows.saturating_sub(2).max(4)).map_err(|e| {
                Failure::new(ErrorCode::StateError, format!("cannot draw {}: {e}", path.display()))
            })?;
        app.output.raw(format!("\n{}\n{drawn}\n", line(&name)).as_bytes());
    }
    Ok(())
}

/// Shows one picture, where the terminal can.
///
/// # Errors
/// As [`show`].
pub fn show_one(app: &App, path: &Path) -> Result<(), Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let (Some((columns, rows)), Some(way)) = (app.output.screen(), way(&variable)) else { return Ok(()) };
    let drawn = drawn(way, &read(path)?, columns.min(WIDEST), rows.saturating_sub(6).max(4))
        .map_err(|e| Failure::new(ErrorCode::StateError, format!("cannot draw {}: {e}", path.display())))?;
    app.output.raw(format!("{drawn}\n").as_bytes());
    Ok(())
}

fn read(path: &Path) -> Result<RgbImage, Failure> {
    let read = image::open(path)
        .map_err(|e| Failure::new(ErrorCode::StateError, format!("cannot read {}: {e}", path.display())))?;
    Ok(read.to_rgb8())
}

/// What a terminal draws a picture from, in so many columns and rows at most.
fn drawn(way: Way, picture: &RgbImage, columns: usize, rows: usize) -> image::ImageResult<String> {
    // A character is about twice as high as wide.
    let high = f64::from(picture.height()) / f64::from(picture.width().max(1)) / 2.0;
    let columns = columns.min((rows as f64 / high) as usize).max(1);
    let rows = ((columns as f64 * high).round() as usize).max(1);
    if let Way::Blocks { all } = way {
        return Ok(blocks(picture, columns as u32, rows as u32, all));
    }
    let longest = picture.width().max(picture.height());
    let picture = DynamicImage::from(picture.clone());
    let picture = if longest > LONGEST { picture.thumbnail(LONGEST, LONGEST) } else { picture };
    let mut png = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut png, ImageFormat::Png)?;
    let (bytes, text) = (png.get_ref().len(), STANDARD.encode(png.get_ref()));
    if way == Way::Iterm {
        let size = format!("size={bytes};width={columns};height={rows};preserveAspectRatio=1");
        return Ok(format!("\x1b]1337;File=inline=1;{size}:{text}\x07"));
    }
    let mut drawn = String::new();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(PIECE));
        // Shown at once, from PNG, and not answered.
        let first = match drawn.is_empty() {
            true => format!("a=T,f=100,q=2,c={columns},r={rows},"),
            false => String::new(),
        };
        drawn.push_str(&format!("\x1b_G{first}m={};{piece}\x1b\\", u8::from(!after.is_empty())));
        rest = after;
    }
    Ok(drawn)
}

/// Upper half blocks: the colour of the text is the upper pixel, that of the ground the lower one.
fn blocks(picture: &RgbImage, columns: u32, rows: u32, all: bool) -> String {
    let small = image::imageops::resize(picture, columns, rows * 2, FilterType::Triangle);
    let colour = |at: &image::Rgb<u8>| {
        let [red, green, blue] = at.0;
        // The cube of 6 by 6 by 6 colours that begins at 16.
        let step = |value: u8| (u32::from(value) * 5 + 127) / 255;
        match all {
            true => format!("2;{red};{green};{blue}"),
            false => format!("5;{}", 16 + 36 * step(red) + 6 * step(green) + step(blue)),
        }
    };
    let mut lines = Vec::new();
    for row in 0..rows {
        let mut text = String::new();
        for column in 0..columns {
            let (upper, lower) = (small.get_pixel(column, row * 2), small.get_pixel(column, row * 2 + 1));
            text.push_str(&format!("\x1b[38;{};48;{}m▀", colour(upper), colour(lower)));
        }
        lines.push(text + "\x1b[0m");
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an environment has, and what follows.
    type Case<'a> = (&'a [(&'a str, &'a str)], Option<Way>);

    #[test]
    fn a_terminal_is_known_by_what_it_says_of_itself() {
        let cases: &[Case<'_>] = &[
            (&[], None),
            (&[("TERM", "dumb"), ("COLORTERM", "truecolor")], None),
            (&[("TERM", "xterm")], None),
            (&[("TERM", "xterm-256color")], Some(Way::Blocks { all: false })),
            (&[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")], Some(Way::Blocks { all: true })),
            (&[("TERM", "xterm-kitty"), ("KITTY_WINDOW_ID", "1")], Some(Way::Kitty)),
            (&[("TERM", "xterm-ghostty")], Some(Way::Kitty)),
            (&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "iTerm.app")], Some(Way::Iterm)),
            (&[("TERM", "tmux-256color"), ("KITTY_WINDOW_ID", "1")], Some(Way::Blocks { all: false })),
        ];
        for (variables, expected) in cases {
            let of = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(way(&of), *expected, "{variables:?}");
        }
    }

    /// A picture that is another one turned or mirrored.
    fn picture() -> RgbImage {
        RgbImage::from_fn(90, 60, |x, y| image::Rgb([(x * 2) as u8, (y * 4) as u8, 200]))
    }

    #[test]
    fn the_protocols_carry_the_very_pixels() {
        let kitty = drawn(Way::Kitty, &picture(), 40, 20).unwrap();
        assert!(kitty.starts_with("\x1b_Ga=T,f=100,q=2,c=40,r=13,m="), "{kitty:?}");
        let pieces = kitty.split("\x1b_G").skip(1);
        let text: String =
            pieces.map(|piece| piece.split_once(';').unwrap().1.trim_end_matches("\x1b\\")).collect();
        let iterm = drawn(Way::Iterm, &picture(), 40, 20).unwrap();
        let (head, body) = iterm.split_once(':').unwrap();
        assert!(head.contains("inline=1") && head.contains("width=40;height=13"), "{head}");
        for text in [text.as_str(), body.trim_end_matches('\x07')] {
            let bytes = STANDARD.decode(text).unwrap();
            assert_eq!(image::load_from_memory(&bytes).unwrap().to_rgb8(), picture());
        }
        // A large one comes in pieces, of which each but the last says that there are more.
        let noise = RgbImage::from_fn(600, 400, |x, y| {
            image::Rgb([(x * y * 7) as u8, (x ^ y) as u8, (x * 31) as u8])
        });
        let kitty = drawn(Way::Kitty, &noise, 40, 20).unwrap();
        let more: Vec<bool> = kitty.split("\x1b_G").skip(1).map(|piece| piece.contains("m=1;")).collect();
        assert!(more.len() > 2 && more.iter().rev().skip(1).all(|more| *more) && !more[more.len() - 1]);
    }

    #[test]
    fn half_blocks_fit_and_have_the_colours_of_the_picture() {
        let drawn = drawn(Way::Blocks { all: true }, &picture(), 200, 10).unwrap();
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!((lines.len(), lines[0].matches('▀').count()), (10, 30), "{drawn:?}");
        // From left to right more red, from top to bottom more green.
        let first = lines[0].split('m').next().unwrap();
        let last = lines[9].rsplit("\x1b[38;2;").next().unwrap();
        let of = |text: &str| -> Vec<u32> { text.split([';', 'm']).filter_map(|n| n.parse().ok()).collect() };
        let (first, last) = (of(first.trim_start_matches("\x1b[38;2;")), of(last));
        assert!(first[0] < 10 && first[1] < 10 && last[0] > 165 && last[1] > 215, "{first:?} {last:?}");
        let few = blocks(&picture(), 4, 1, false);
        assert!(few.contains("38;5;") && !few.contains("38;2;"), "{few:?}");
    }
}
