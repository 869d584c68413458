//! Tables for people: columns as wide as their widest cell, numbers to the right.

/// Rows of cells below a head. A column whose cells all begin with a digit (or are "-") is a column of numbers.
#[must_use]
pub(crate) fn render(head: &[&str], rows: &[Vec<String>]) -> String {
    let width_of = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..head.len()).map(width_of).collect();
    let is_number = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit()) || cell == "-";
    let numbers: Vec<_> = (0..head.len()).map(|column| rows.iter().all(|row| is_number(&row[column]))).collect();
    let mut out = String::new();
    let head: Vec<_> = head.iter().map(|cell| (*cell).to_owned()).collect();
    for row in std::iter::once(&head).chain(rows) {
        let cells = row.iter().enumerate().map(|(column, cell)| match (numbers[column], widths[column]) {
            (true, width) => format!("{cell:>width$}"),
            (false, width) => format!("{cell:<width$}"),
        });
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let rows = [vec!["vm1".into(), "10".into(), "x".into()], vec!["database".into(), "-".into(), "y".into()]];
        assert_eq!(
            render(&["VOLUME", "ERRORS", "NOTE"], &rows),
            "VOLUME    ERRORS  NOTE\nvm1           10  x\ndatabase       -  y\n"
        );
    }
}
