//! Draws overlaps of images as heat maps: plain SVG without scripts, in which all text is escaped.

use std::io::{self, Write};

/// The side of a cell in pixels; smaller with many images.
const CELL: usize = 30;
/// The width of all cells together, at most, unless each has the smallest size.
const SIDE_MAX: usize = 1200;
const CELL_MIN: usize = 4;
/// Cells below this side have no numbers.
const NUMBERED_MIN: usize = 22;
/// Most characters of a name that are drawn.
const NAME_MAX: usize = 40;

/// One map: the bytes that every two images share, on the diagonal those of one.
#[derive(Clone, Debug)]
pub struct HeatMap<'a> {
    /// What was compared.
    pub title: String,
    /// The names of the images.
    pub names: Vec<&'a str>,
    /// As in the report.
    pub overlap_bytes: &'a [Vec<u64>],
}

/// Draws maps, one below the other, to `out`. A cell shows how much of the row's data the column's image has, in percent.
///
/// # Errors
/// Those of writing.
pub fn draw_heat_maps(out: &mut dyn Write, maps: &[HeatMap<'_>]) -> io::Result<()> {
    let sizes: Vec<Size> = maps.iter().map(Size::of).collect();
    let width = sizes.iter().map(|size| size.width).max().unwrap_or(0);
    let height: usize = sizes.iter().map(|size| size.height).sum();
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>"
    )?;
    let mut top = 0;
    for (map, size) in maps.iter().zip(sizes) {
        draw(out, map, &size, top)?;
        top += size.height;
    }
    writeln!(out, "</svg>")
}

/// The size of a map in pixels.
struct Size {
    cell: usize,
    /// The width of the names.
    left: usize,
    width: usize,
    height: usize,
}

impl Size {
    fn of(map: &HeatMap<'_>) -> Self {
        let images = map.names.len();
        let cell = (SIDE_MAX / images.max(1)).clamp(CELL_MIN, CELL);
        let longest = map.names.iter().map(|name| name.chars().count().min(NAME_MAX)).max().unwrap_or(0);
        let left = 16 + 7 * (longest + 4);
        Self { cell, left, width: left + images * cell + 16, height: 72 + images * cell }
    }
}

/// Draws a map below `top`.
fn draw(out: &mut dyn Write, map: &HeatMap<'_>, size: &Size, top: usize) -> io::Result<()> {
    let Size { cell, left, .. } = *size;
    let grid_top = top + 56;
    writeln!(out, "<text x=\"16\" y=\"{}\" font-size=\"14\">{}</text>", top + 24, escaped(&map.title))?;
    for (a, name) in map.names.iter().enumerate() {
        let y = grid_top + a * cell;
        if cell >= 10 {
            let shown: String = name.chars().take(NAME_MAX).collect();
            let label = escaped(&format!("{} {shown}", a + 1));
            writeln!(
                out,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{label}</text>\n<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                left - 6,
                y + cell / 2 + 4,
                left + a * cell + cell / 2,
                grid_top - 6,
                a + 1
            )?;
        }
        let row = map.overlap_bytes.get(a).map_or(&[][..], Vec::as_slice);
        let own = row.get(a).copied().unwrap_or(0);
        for (b, (common, other)) in row.iter().zip(&map.names).enumerate() {
            draw_cell(out, (left + b * cell, y, cell), (*common, own), (name, other))?;
        }
    }
    Ok(())
}

fn draw_cell(
    out: &mut dyn Write,
    (x, y, side): (usize, usize, usize),
    (common, own): (u64, u64),
    names: (&str, &str),
) -> io::Result<()> {
    let share = if own == 0 { 0.0 } else { (common as f64 / own as f64).clamp(0.0, 1.0) };
    // From white to a dark blue.
    let tone = |from: f64, to: f64| (from + (to - from) * share).round() as u8;
    let (red, green, blue) = (tone(255.0, 8.0), tone(255.0, 48.0), tone(255.0, 107.0));
    let percent = share * 100.0;
    let title = escaped(&format!("{percent:.1} % of {} is in {}", names.0, names.1));
    write!(
        out,
        "<g><title>{title}</title><rect x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\" fill=\"#{red:02x}{green:02x}{blue:02x}\" \
         stroke=\"#dddddd\" stroke-width=\"0.5\"/>"
    )?;
    if side >= NUMBERED_MIN && own > 0 {
        let colour = if share > 0.55 { "#ffffff" } else { "#000000" };
        let (x, y) = (x + side / 2, y + side / 2 + 4);
        write!(
            out,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"{colour}\">{percent:.0}</text>"
        )?;
    }
    writeln!(out, "</g>")
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

    fn heat_maps(maps: &[HeatMap<'_>]) -> String {
        let mut drawn = Vec::new();
        draw_heat_maps(&mut drawn, maps).unwrap();
        String::from_utf8(drawn).unwrap()
    }

    #[test]
    fn names_cannot_leave_their_text() {
        let names = vec!["<script>alert(1)</script>", "a\"b'c&d\u{1}"];
        let overlap = vec![vec![10, 5], vec![5, 20]];
        let map = HeatMap { title: "<&>".into(), names, overlap_bytes: &overlap };
        let drawn = heat_maps(&[map]);
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
            let drawn = heat_maps(&[HeatMap { title: String::new(), names, overlap_bytes: &overlap }]);
            assert_eq!(drawn.matches("<rect").count(), images * images + 1);
        }
        assert!(heat_maps(&[]).starts_with("<svg"));
    }
}
