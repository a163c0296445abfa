//! Draws an analysis: plain SVG without scripts, in which all text is escaped.
//!
//! - `heat_map`: how much every two images share
//! - `growth`: how a store grows with each image

mod growth;
mod heat_map;

use std::io::{self, Write};

pub use growth::{Growth, GrowthLine};
pub use heat_map::HeatMap;

/// One drawing.
#[derive(Clone, Debug)]
pub enum Drawing<'a> {
    /// How much every two images share.
    HeatMap(HeatMap<'a>),
    /// How a store grows with each image.
    Growth(Growth),
}

impl Drawing<'_> {
    /// Width and height in pixels.
    fn size(&self) -> (usize, usize) {
        match self {
            Self::HeatMap(map) => map.size(),
            Self::Growth(growth) => growth.size(),
        }
    }

    /// Draws it below `top`.
    fn draw(&self, out: &mut dyn Write, top: usize) -> io::Result<()> {
        match self {
            Self::HeatMap(map) => map.draw(out, top),
            Self::Growth(growth) => growth.draw(out, top),
        }
    }
}

/// Draws drawings, one below the other, to `out`.
///
/// # Errors
/// Those of writing.
pub fn draw_svg(out: &mut dyn Write, drawings: &[Drawing<'_>]) -> io::Result<()> {
    let width = drawings.iter().map(|drawing| drawing.size().0).max().unwrap_or(0);
    let height: usize = drawings.iter().map(|drawing| drawing.size().1).sum();
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>"
    )?;
    let mut top = 0;
    for drawing in drawings {
        drawing.draw(out, top)?;
        top += drawing.size().1;
    }
    writeln!(out, "</svg>")
}

/// Draws the title of a drawing that begins at `top`.
fn draw_title(out: &mut dyn Write, title: &str, top: usize) -> io::Result<()> {
    writeln!(out, "<text x=\"16\" y=\"{}\" font-size=\"14\">{}</text>", top + 24, escaped(title))
}

/// Text as XML has it; characters that XML does not allow become question marks.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            character if character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('?');
            }
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(drawings: &[Drawing<'_>]) -> String {
        let mut drawn = Vec::new();
        draw_svg(&mut drawn, drawings).unwrap();
        String::from_utf8(drawn).unwrap()
    }

    #[test]
    fn names_cannot_leave_their_text() {
        let names = vec!["<script>alert(1)</script>", "a\"b'c&d\u{1}"];
        let overlap = vec![vec![10, 5], vec![5, 20]];
        let map = HeatMap { title: "<&>".into(), names, overlap_bytes: &overlap };
        let drawn = drawn(&[Drawing::HeatMap(map)]);
        assert!(!drawn.contains("<script") && !drawn.contains("a\"b") && !drawn.contains('\u{1}'), "{drawn}");
        assert!(drawn.contains("&lt;script&gt;") && drawn.contains("a&quot;b&#39;c&amp;d?"), "{drawn}");
        assert!(drawn.contains(">50</text>") && drawn.contains(">25</text>"), "{drawn}");
        assert_eq!(drawn.matches("<rect").count(), 5);
    }

    #[test]
    fn any_number_of_images_is_drawn() {
        for images in [0, 1, 100, 400] {
            let names = vec!["lab/a"; images];
            let overlap = vec![vec![0; images]; images];
            let line = GrowthLine { name: "<as stored>".into(), added_bytes: vec![7; images] };
            let growth = Growth { title: String::new(), lines: vec![line] };
            let map = HeatMap { title: String::new(), names, overlap_bytes: &overlap };
            let drawn = drawn(&[Drawing::HeatMap(map), Drawing::Growth(growth)]);
            assert_eq!(drawn.matches("<rect").count(), images * images + 1);
            assert_eq!(drawn.matches("<polyline").count(), 1);
            assert!(drawn.contains("&lt;as stored&gt;"), "{drawn}");
        }
        assert!(drawn(&[]).starts_with("<svg"));
    }
}
