//! A terminal that is drawn over, for views that live.
//!
//! The alternate screen, so that what was on the terminal is there again afterwards; the cursor hidden; lines that are
//! too long cut, not wrapped. Limit: a process that is killed cannot give the terminal back (`reset` does).

use crate::verb::print;
use rustix::termios::tcgetwinsize;
use std::io::IsTerminal;

/// Alternate screen, no cursor, no wrapping; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// To the upper left; and, at a line's and at the view's end, nothing of the former view stays.
const HOME: &str = "\x1b[H";
const END_OF_LINE: &str = "\x1b[K\r\n";
const END: &str = "\x1b[J";

/// Rows of a terminal that does not tell.
const ROWS: usize = 24;

/// See the module. Dropping it gives the terminal back.
#[derive(Debug)]
pub(crate) struct Screen(());

impl Screen {
    /// The terminal at standard output; `None` if there is none.
    pub(crate) fn open() -> Option<Self> {
        if !std::io::stdout().is_terminal() {
            return None;
        }
        print(ENTER);
        Some(Self(()))
    }

    /// Shows `text`, as much of it as there is room for.
    #[expect(clippy::unused_self, reason = "who draws has opened")]
    pub(crate) fn draw(&mut self, text: &str) {
        print(&frame(text, rows()));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        print(LEAVE);
    }
}

fn rows() -> usize {
    match tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_row > 0 => size.ws_row.into(),
        _ => ROWS,
    }
}

/// The last row stays free: a line feed there would move all up.
fn frame(text: &str, rows: usize) -> String {
    let lines = text.lines().take(rows.saturating_sub(1));
    let body: String = lines.flat_map(|line| [line, END_OF_LINE]).collect();
    format!("{HOME}{body}{END}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_cut_to_the_terminal_and_leaves_nothing_of_the_former() {
        assert_eq!(frame("a\nb\nc\n", 3), "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n\x1b[J");
        assert_eq!(frame("a\n", 24), "\x1b[Ha\x1b[K\r\n\x1b[J");
    }

    #[test]
    fn without_a_terminal_there_is_no_screen() {
        if !std::io::stdout().is_terminal() {
            assert!(Screen::open().is_none());
        }
    }
}
