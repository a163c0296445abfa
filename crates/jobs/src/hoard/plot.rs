//! The growth of a hoard as an SVG picture, readable in light and dark mode, with its figures as text for screen
//! readers.

use std::fmt::Write as _;

use super::status::HoardStatus;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 60.0;

/// End of the fitted curve, as a multiple of the number of images.
const BEYOND: f64 = 1.5;
/// Points of a curve.
const CURVE_POINTS: usize = 64;

/// Draws the growth curve: the sum of the boot sets, their unique bytes, and the extrapolated fit.
pub fn growth_svg(status: &HoardStatus) -> String {
    let images = status.boot_sets.len();
    let images_max = (images as f64 * BEYOND).max(2.0);
    let bytes_max = status.boot_set_bytes.max(status.fit.map_or(0, |fit| fit.bytes(images_max as usize)));
    let scale = Scale { images_max, bytes_max: (bytes_max as f64 * 1.05).max(1.0) };
    let sums = status.boot_sets.iter().map(|it| it.sum_bytes as f64);
    let unique = status.boot_sets.iter().map(|it| it.unique_bytes as f64);
    let mut out = String::new();
    head(&mut out, status);
    scale.axes(&mut out);
    let points = |bytes: &mut dyn Iterator<Item = f64>| -> Vec<(f64, f64)> {
        (1..).zip(bytes).map(|(number, bytes)| (f64::from(number), bytes)).collect()
    };
    scale.line(&mut out, "sum", &points(&mut { sums }));
    scale.line(&mut out, "unique", &points(&mut { unique }));
    if let Some(fit) = status.fit {
        let at = |n: usize| 1.0 + (images_max - 1.0) * n as f64 / CURVE_POINTS as f64;
        let curve: Vec<(f64, f64)> =
            (0..=CURVE_POINTS).map(|n| (at(n), fit.factor * at(n).powf(fit.exponent))).collect();
        scale.line(&mut out, "fit", &curve);
    }
    legend(&mut out, status);
    out += "</svg>\n";
    out
}

fn head(out: &mut String, status: &HoardStatus) {
    // Writing to a `String` cannot fail.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-labelledby=\"title description\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title id=\"title\">Growth of the hoard</title>\n\
         <desc id=\"description\">{} boot sets of {} together, {} without doubles.</desc>\n\
         <style>\n\
         text {{ fill: #222 }} .axis {{ stroke: #777; fill: none }} .grid {{ stroke: #ddd }}\n\
         .sum, .unique, .fit {{ fill: none; stroke-width: 2 }}\n\
         .sum {{ stroke: #b34700 }} .unique {{ stroke: #005fb8 }} .fit {{ stroke: #005fb8; stroke-dasharray: 6 5 }}\n\
         @media (prefers-color-scheme: dark) {{ text {{ fill: #eee }} .grid {{ stroke: #444 }} .sum {{ stroke: #ff9a57 }} \
         .unique, .fit {{ stroke: #6db9ff }} }}\n\
         </style>\n",
        status.boot_sets.len(),
        bytes_text(status.boot_set_bytes as f64),
        bytes_text(status.unique_bytes as f64),
    );
}

fn legend(out: &mut String, status: &HoardStatus) {
    let fit = status.fit.map(|fit| {
        format!("fit: images to the power of {:.2}, {:.1} % off", fit.exponent, fit.error * 100.0)
    });
    let rows = [
        ("sum", Some("sum of all boot sets".to_owned())),
        ("unique", Some("without doubles".to_owned())),
        ("fit", fit),
    ];
    let mut y = TOP - 20.0;
    for (class, text) in rows.into_iter().filter_map(|(class, text)| Some((class, text?))) {
        let x = LEFT + 12.0;
        y += 18.0;
        let _ = writeln!(
            out,
            "<path class=\"{class}\" d=\"M{x} {:.1}h28\"/><text x=\"{}\" y=\"{y:.1}\">{text}</text>",
            y - 4.0,
            x + 36.0
        );
    }
}

struct Scale {
    images_max: f64,
    bytes_max: f64,
}

impl Scale {
    fn x(&self, images: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * images / self.images_max
    }

    fn y(&self, bytes: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * bytes / self.bytes_max
    }

    fn axes(&self, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for step in steps(self.bytes_max) {
            let y = self.y(step);
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                bytes_text(step)
            );
        }
        for step in steps(self.images_max).into_iter().filter(|step| step.fract() == 0.0) {
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{step}</text>",
                self.x(step),
                bottom + 18.0
            );
        }
        let _ = writeln!(
            out,
            "<path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\
             <text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">images, in order of registration</text>",
            (LEFT + right) / 2.0,
            bottom + 42.0
        );
    }

    fn line(&self, out: &mut String, class: &str, points: &[(f64, f64)]) {
        if points.is_empty() {
            return;
        }
        let _ = write!(out, "<path class=\"{class}\" d=\"");
        for (n, (images, bytes)) in points.iter().enumerate() {
            let _ =
                write!(out, "{}{:.1} {:.1}", if n == 0 { 'M' } else { 'L' }, self.x(*images), self.y(*bytes));
        }
        *out += "\"/>\n";
        // A single point is drawn as a dot.
        if let [(images, bytes)] = points {
            let _ = writeln!(
                out,
                "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>",
                self.x(*images),
                self.y(*bytes)
            );
        }
    }
}

/// Returns four to ten round numbers up to a maximum.
fn steps(max: f64) -> Vec<f64> {
    let power = 10_f64.powf((max / 4.0).log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().map(|n| n * power).take_while(|step| *step * 4.0 <= max).last();
    let step = step.unwrap_or(power);
    (0..).map(|n| f64::from(n) * step).take_while(|value| *value <= max).collect()
}

fn bytes_text(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = usize::from(value < 10.0 && value.fract() != 0.0);
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_few() {
        for max in [1.0, 3.0, 7.5, 99.0, 1e9, 2.4e9, 999.0] {
            let steps = steps(max);
            assert!((4..=11).contains(&steps.len()), "{max}: {steps:?}");
            assert!(steps.iter().all(|step| *step <= max));
        }
        assert_eq!(bytes_text(2.5e9), "2.5 GB");
        assert_eq!(bytes_text(20e6), "20 MB");
    }

    #[test]
    fn an_empty_hoard_and_a_large_one_are_drawn() {
        let empty = growth_svg(&HoardStatus::default());
        assert!(empty.starts_with("<svg") && empty.ends_with("</svg>\n") && !empty.contains("NaN"));
        let status = super::super::status::sample(40);
        let drawn = growth_svg(&status);
        for part in ["class=\"sum\"", "class=\"unique\"", "class=\"fit\"", "40 boot sets"] {
            assert!(drawn.contains(part), "{part}");
        }
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
    }
}
