//! How a store grows with each image, as lines.

use std::io::{self, Write};

use super::{draw_title, escaped};

/// Where the lines are drawn, in pixels from the corner of the drawing.
const LEFT: usize = 80;
const TOP: usize = 44;
const WIDTH: usize = 640;
const HEIGHT: usize = 320;
/// The height of a line's name below them.
const NAME_HEIGHT: usize = 18;
/// Parts of the axis of bytes.
const PARTS: usize = 4;
/// The colours of the lines, in turn.
const COLOURS: [&str; 6] = ["#08306b", "#d94801", "#238b45", "#6a51a3", "#cb181d", "#525252"];

/// How a store grows with each image.
#[derive(Clone, Debug)]
pub struct Growth {
    /// What grows.
    pub title: String,
    /// All have the same images, in the same order.
    pub lines: Vec<GrowthLine>,
}

/// One way to store images.
#[derive(Clone, Debug)]
pub struct GrowthLine {
    /// The way.
    pub name: String,
    /// What each image adds to those before it.
    pub added_bytes: Vec<u64>,
}

impl GrowthLine {
    fn total(&self) -> u64 {
        self.added_bytes.iter().sum()
    }
}

impl Growth {
    pub(super) fn size(&self) -> (usize, usize) {
        (LEFT + WIDTH + 16, TOP + HEIGHT + 40 + NAME_HEIGHT * self.lines.len())
    }

    pub(super) fn draw(&self, out: &mut dyn Write, top: usize) -> io::Result<()> {
        draw_title(out, &self.title, top)?;
        let (first, base) = (top + TOP, top + TOP + HEIGHT);
        let images = self.lines.iter().map(|line| line.added_bytes.len()).max().unwrap_or(0);
        let most = self.lines.iter().map(GrowthLine::total).max().unwrap_or(0).max(1) as f64;
        for part in 0..=PARTS {
            let (y, bytes) = (base - HEIGHT * part / PARTS, most * part as f64 / PARTS as f64);
            writeln!(
                out,
                "<path d=\"M{LEFT} {y}H{}\" stroke=\"#dddddd\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.1} MB</text>",
                LEFT + WIDTH,
                LEFT - 6,
                y + 4,
                bytes / 1e6
            )?;
        }
        writeln!(
            out,
            "<path d=\"M{LEFT} {first}V{base}\" stroke=\"#dddddd\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{images} images</text>",
            LEFT + WIDTH,
            base + 18
        )?;
        for (number, (line, colour)) in self.lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let (mut points, mut bytes) = (format!("{LEFT},{base}"), 0);
            for (image, added) in (1..).zip(&line.added_bytes) {
                bytes += added;
                let x = LEFT as f64 + WIDTH as f64 * f64::from(image) / images.max(1) as f64;
                points.push_str(&format!(" {x:.1},{:.1}", base as f64 - HEIGHT as f64 * bytes as f64 / most));
            }
            let y = base + 40 + NAME_HEIGHT * number;
            writeln!(
                out,
                "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
                 <path d=\"M{LEFT} {}h24\" stroke=\"{colour}\" stroke-width=\"2\"/><text x=\"{}\" y=\"{y}\">{}: {:.1} MB</text>",
                y - 4,
                LEFT + 32,
                escaped(&line.name),
                line.total() as f64 / 1e6
            )?;
        }
        Ok(())
    }
}
