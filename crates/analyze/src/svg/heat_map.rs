//! How much every two images share, as a map of cells.

use std::io::{self, Write};

use super::{draw_title, escaped};

/// The side of a cell in pixels; smaller with many images.
const CELL: usize = 30;
/// The width of all cells together, at most, unless each has the smallest size.
const SIDE_MAX: usize = 1200;
const CELL_MIN: usize = 4;
/// Cells below this side have no numbers.
const NUMBERED_MIN: usize = 22;
/// Most characters of a name that are drawn.
const NAME_MAX: usize = 40;

/// The bytes that every two images share, on the diagonal those of one. A cell shows how much of the row's data the column's image has,
/// in percent.
#[derive(Clone, Debug)]
pub struct HeatMap<'a> {
    /// What was compared.
    pub title: String,
    /// The names of the images.
    pub names: Vec<&'a str>,
    /// As in the report.
    pub overlap_bytes: &'a [Vec<u64>],
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

impl HeatMap<'_> {
    pub(super) fn size(&self) -> (usize, usize) {
        let Size { width, height, .. } = Size::of(self);
        (width, height)
    }

    pub(super) fn draw(&self, out: &mut dyn Write, top: usize) -> io::Result<()> {
        let Size { cell, left, .. } = Size::of(self);
        let grid_top = top + 56;
        draw_title(out, &self.title, top)?;
        for (a, name) in self.names.iter().enumerate() {
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
            let row = self.overlap_bytes.get(a).map_or(&[][..], Vec::as_slice);
            let own = row.get(a).copied().unwrap_or(0);
            for (b, (common, other)) in row.iter().zip(&self.names).enumerate() {
                draw_cell(out, (left + b * cell, y, cell), (*common, own), (name, other))?;
            }
        }
        Ok(())
    }
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
