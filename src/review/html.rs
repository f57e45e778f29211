//! What every page that is written needs: a head that lets nothing in from elsewhere, text that stays text, and
//! pictures inside the page.

use std::path::Path;

use base64::Engine as _;
use image::codecs::jpeg::JpegEncoder;

use crate::review::plain;

/// Quality of a thumbnail.
const QUALITY: u8 = 78;

/// A page up to its first heading, which is the title. It ends with `</body></html>`.
pub fn head(title: &str, style: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{0}</title><style>{style}</style></head>\n<body>\n<h1>{0}</h1>\n",
        text(title)
    )
}

/// Foreign text as HTML, in an element or in an attribute with double quotes: what could be markup, or make text
/// read otherwise than it stands, is neither.
pub fn text(raw: &str) -> String {
    let mut html = String::with_capacity(raw.len());
    for c in plain(raw).chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            _ => html.push(c),
        }
    }
    html
}

/// A copy of a picture with a longest side of `edge` pixels, as an address that holds it; `None` when it cannot
/// be read.
pub fn thumbnail(path: &Path, edge: u32) -> Option<String> {
    let picture = image::open(path).ok()?.thumbnail(edge, edge).to_rgb8();
    let mut jpeg = Vec::new();
    picture.write_with_encoder(JpegEncoder::new_with_quality(&mut jpeg, QUALITY)).ok()?;
    Some(format!("data:image/jpeg;base64,{}", base64::engine::general_purpose::STANDARD.encode(jpeg)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_does_not_become_markup() {
        assert_eq!(text("<b>\"x\" & 'y'\u{7}\u{202e}"), "&lt;b&gt;&quot;x&quot; &amp; &#39;y&#39;");
        assert_eq!(text("two\nlines"), "two\nlines");
        assert!(head("</title><script>", "").contains("&lt;/title&gt;&lt;script&gt;"));
    }
}
