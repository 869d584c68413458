//! Lines over an axis, as SVG text. Drawn by `plotters`, which needs neither fonts nor a screen for it.

use crate::Error;
use plotters::prelude::*;

const SIZE: (u32, u32) = (860, 480);
const FONT: &str = "sans-serif";
/// Told apart with any colour vision (Okabe and Ito, 2008), and grey.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(150, 150, 150),
    RGBColor(0, 0, 0),
];

/// A line.
#[derive(Clone, Debug)]
pub struct Line {
    /// In the legend.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
    /// Beside a point, if its text is not empty; as many as points, or none.
    pub labels: Vec<String>,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart<'a> {
    /// Above it.
    pub title: &'a str,
    /// Below the axis.
    pub x: &'a str,
    /// Beside the axis.
    pub y: &'a str,
    /// Text of each place on the horizontal axis, or nothing; places are whole numbers. `None`: the number.
    pub x_names: Option<&'a [String]>,
    /// Highest value of the vertical axis, which begins at 0. `None`: that of the lines.
    pub y_max: Option<f64>,
    /// What is drawn.
    pub lines: &'a [Line],
}

impl Chart<'_> {
    /// As SVG.
    ///
    /// # Errors
    /// If the library fails.
    pub fn to_svg(&self, name: &'static str) -> Result<String, Error> {
        let mut svg = String::new();
        let drawn = self.draw(SVGBackend::with_string(&mut svg, SIZE));
        drawn.map_err(|error| Error::Draw { name: name.to_owned(), cause: error.to_string() })?;
        Ok(svg)
    }

    fn draw<B: DrawingBackend>(&self, backend: B) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x_from = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let x_to = points().map(|point| point.0).fold(x_from + 1e-9, f64::max);
        let y_to = self.y_max.unwrap_or_else(|| points().map(|point| point.1).fold(1e-9, f64::max) * 1.05);
        let area = backend.into_drawing_area();
        area.fill(&WHITE)?;
        let (chart_area, legend_area) = area.split_horizontally(SIZE.0 - 170);
        let mut chart = ChartBuilder::on(&chart_area)
            .caption(self.title, (FONT, 16))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(x_from..x_to, 0.0..y_to)?;
        let x_name = |x: &f64| match self.x_names {
            Some(names) if x.fract() == 0.0 => names.get(*x as usize).cloned().unwrap_or_default(),
            Some(_) => String::new(),
            None => format!("{x}"),
        };
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(self.x).y_desc(self.y).x_label_formatter(&x_name).label_style((FONT, 12)).light_line_style(WHITE);
        if let Some(names) = self.x_names {
            mesh.x_labels(names.len());
        }
        mesh.draw()?;
        for (at, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            chart.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?;
            let labels = line.points.iter().zip(&line.labels);
            chart.draw_series(
                labels.map(|(&point, label)| EmptyElement::at(point) + Text::new(label.clone(), (-8, -16), (FONT, 11))),
            )?;
            let y = 40 + 18 * at as i32;
            legend_area.draw(&PathElement::new([(0, y + 6), (18, y + 6)], colour.stroke_width(2)))?;
            legend_area.draw(&Text::new(line.name.clone(), (24, y), (FONT, 13)))?;
        }
        area.present()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_shows_its_lines_and_their_names() {
        let line =
            |name: &str, y: f64| Line { name: name.into(), points: vec![(0.0, y), (1.0, 2.0 * y)], labels: vec![] };
        let names = ["1 x 1".to_owned(), "1 x 2".to_owned()];
        let lines = [line("first", 1.0), line("second", 2.0)];
        let chart = Chart { title: "t", x: "x", y: "y", x_names: Some(&names), y_max: None, lines: &lines };
        let svg = chart.to_svg("test").unwrap();
        for text in ["<svg", "first", "second", "1 x 1", "1 x 2", "</svg>"] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        let lines_of =
            |colour: RGBColor| svg.matches(&format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)).count();
        // The line and its legend.
        assert_eq!((lines_of(COLOURS[0]), lines_of(COLOURS[1]), lines_of(COLOURS[2])), (2, 2, 0));
    }
}
