//! What `unclobber top` shows, on 80 columns and 24 lines or more: owners, their files, and refusals as they happen.
//!
//! It never asks a guard and never touches a terminal: it draws what it was given.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};

use super::output::counted;
use crate::clock;
use crate::fs::{Activity, OwnerActivity, Told};
use crate::guard::{Timestamp, printable};

/// Refusals remembered.
const REMEMBERED: usize = 200;
/// Where columns begin depends on these.
const NUMBER_WIDTH: u16 = 8;

/// What is known, from look to look.
#[derive(Debug)]
pub(crate) struct Board {
    root: String,
    activity: Activity,
    /// Each with the number of times that it happened one after the other.
    refusals: VecDeque<(Told, u64)>,
    /// Requests a second, by owner.
    rates: HashMap<String, u64>,
    before: Option<(HashMap<String, u64>, Instant)>,
    paused: bool,
    first: usize,
    colour: bool,
}

impl Board {
    pub(crate) fn new(root: &str) -> Self {
        Self {
            root: printable(root),
            activity: Activity::default(),
            refusals: VecDeque::new(),
            rates: HashMap::new(),
            before: None,
            paused: false,
            first: 0,
            colour: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }

    /// The number of the last refusal known.
    pub(crate) fn sequence(&self) -> u64 {
        self.activity.sequence
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(crate) fn pause(&mut self) {
        self.paused = !self.paused;
    }

    pub(crate) fn scroll(&mut self, by: isize) {
        let last = self.activity.owners.len().saturating_sub(1);
        self.first = self.first.saturating_add_signed(by).min(last);
    }

    /// Takes in what was looked up at this moment.
    pub(crate) fn take(&mut self, activity: Activity, at: Instant) {
        let counts: HashMap<String, u64> = activity
            .owners
            .iter()
            .map(|owner| (owner.name.clone(), owner.operations))
            .collect();
        if let Some((before, then)) = &self.before {
            let elapsed = at.saturating_duration_since(*then).as_millis().max(1);
            let rate = |name: &str, now: u64| {
                let done = now.saturating_sub(before.get(name).copied().unwrap_or(0));
                u64::try_from(u128::from(done) * 1000 / elapsed).unwrap_or(u64::MAX)
            };
            self.rates = counts
                .iter()
                .map(|(name, now)| (name.clone(), rate(name, *now)))
                .collect();
        }
        self.before = Some((counts, at));
        for told in &activity.refusals {
            match self.refusals.back_mut() {
                Some((last, times)) if last.is_like(told) => {
                    *times += 1 + told.more;
                    last.clone_from(told);
                }
                Some(_) | None => self.refusals.push_back((told.clone(), 1 + told.more)),
            }
        }
        while self.refusals.len() > REMEMBERED {
            self.refusals.pop_front();
        }
        self.activity = activity;
        self.scroll(0);
    }

    fn style(&self, colour: Color) -> Style {
        if self.colour {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    fn rate_of(&self, owner: &OwnerActivity) -> u64 {
        self.rates.get(&owner.name).copied().unwrap_or(0)
    }
}

/// Draws the whole view.
pub(crate) fn draw(frame: &mut Frame<'_>, board: &Board) {
    let parts = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(4),
        Constraint::Percentage(45),
        Constraint::Length(1),
    ]);
    let [head, owners, refusals, keys] = parts.areas(frame.area());
    draw_head(frame, board, head);
    draw_owners(frame, board, owners);
    draw_refusals(frame, board, refusals);
    draw_keys(frame, board, keys);
}

fn draw_head(frame: &mut Frame<'_>, board: &Board, area: Rect) {
    let total: u64 = board.activity.owners.iter().map(|owner| board.rate_of(owner)).sum();
    let owners = (board.activity.owners.len() + board.activity.more_owners) as u64;
    let counts = format!("{}, {}/s ", counted(owners, "owner"), counted(total, "operation"));
    let room = usize::from(area.width).saturating_sub(counts.len() + 16);
    let root = end_of(&board.root, room);
    let gap = room.saturating_sub(root.chars().count());
    let line = format!(" unclobber top: {root}{:gap$}{counts}", "");
    let style = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(Paragraph::new(line).style(style), area);
}

fn draw_owners(frame: &mut Frame<'_>, board: &Board, area: Rect) {
    let block = Block::new().borders(Borders::TOP).title(" owners ");
    let name_width = area.width / 4;
    let file_width = usize::from(area.width.saturating_sub(name_width + 4 * (NUMBER_WIDTH + 1) + 1));
    let rows = board.activity.owners.iter().skip(board.first).map(|owner| {
        let refused = if owner.refusals > 0 {
            board.style(Color::Red)
        } else {
            Style::new()
        };
        let number = |number: u64| Cell::new(Text::from(number.to_string()).right_aligned());
        Row::new([
            Cell::new(end_of(&printable(&owner.name), usize::from(name_width))),
            number(board.rate_of(owner)),
            number(owner.operations),
            number(owner.observations),
            number(owner.refusals).style(refused),
            Cell::new(file_of(owner, file_width)),
        ])
    });
    let head = |text: &'static str| Cell::new(Text::from(text).right_aligned());
    let header = Row::new([
        Cell::new("OWNER"),
        head("OPS/S"),
        head("OPS"),
        head("READ"),
        head("REFUSED"),
        Cell::new("FILE (* open)"),
    ]);
    let number = Constraint::Length(NUMBER_WIDTH);
    let widths = [
        Constraint::Length(name_width),
        number,
        number,
        number,
        number,
        Constraint::Min(10),
    ];
    let header = header.style(Style::new().add_modifier(Modifier::BOLD));
    if board.activity.owners.is_empty() {
        let text = Paragraph::new("\nnobody works in this directory yet").block(block);
        return frame.render_widget(text, area);
    }
    frame.render_widget(Table::new(rows, widths).header(header).block(block), area);
}

/// The file that the owner has open, else the one it opened last.
fn file_of(owner: &OwnerActivity, width: usize) -> String {
    match (owner.open.as_slice(), &owner.last) {
        ([file, rest @ ..], _) => {
            let more = if rest.is_empty() {
                String::new()
            } else {
                format!(" +{}", rest.len())
            };
            let room = width.saturating_sub(more.len() + 2);
            format!("* {}{more}", end_of(&printable(file), room))
        }
        ([], Some(last)) => end_of(&printable(last), width),
        ([], None) => String::new(),
    }
}

fn draw_refusals(frame: &mut Frame<'_>, board: &Board, area: Rect) {
    let block = Block::new().borders(Borders::TOP).title(" refused, the latest last ");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let width = usize::from(inner.width);
    let shown = usize::from(inner.height) / 2;
    if board.refusals.is_empty() {
        return frame.render_widget(Paragraph::new("nothing since this view began"), inner);
    }
    let first = board.refusals.len().saturating_sub(shown);
    let mut lines = Vec::new();
    for (told, times) in board.refusals.iter().skip(first) {
        lines.extend(refusal(board, told, *times, width));
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

/// Two lines: who was refused what, and what clears it.
fn refusal(board: &Board, told: &Told, times: u64, width: usize) -> [Line<'static>; 2] {
    let at = clock::utc(Timestamp { sec: told.at, nsec: 0 });
    let time = at.get(11..19).unwrap_or_default();
    let times = if times == 1 {
        String::new()
    } else {
        format!("({times} times) ")
    };
    let start = format!("{time}  {}  {times}{} ", printable(&told.owner), told.operation);
    let room = width.saturating_sub(start.chars().count());
    let what = format!("{start}{}", end_of(&printable(&told.path), room));
    let would = if told.enforced { "" } else { "only recorded, " };
    let step = format!("{would}{}: {}", told.code, told.step);
    [
        Line::from(what),
        Line::from(vec![
            Span::raw(" ".repeat(10)),
            Span::styled(step, board.style(Color::Red)),
        ]),
    ]
}

fn draw_keys(frame: &mut Frame<'_>, board: &Board, area: Rect) {
    let pause = if board.paused { "p go on (PAUSED)" } else { "p pause" };
    let keys = format!(" q quit   {pause}   up/down scroll the owners   times are UTC");
    let style = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(Paragraph::new(keys).style(style), area);
}

/// As much of the end of a text as there is room for: of a path, the end says most.
fn end_of(text: &str, room: usize) -> String {
    let length = text.chars().count();
    if length <= room {
        return text.to_owned();
    }
    let skip = length - room.saturating_sub(1);
    format!("…{}", text.chars().skip(skip).collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn owner(name: &str, operations: u64, refusals: u64) -> OwnerActivity {
        OwnerActivity {
            name: name.to_owned(),
            named: true,
            operations,
            observations: operations / 10,
            refusals,
            open: Vec::new(),
            last: Some("src/main.rs".to_owned()),
        }
    }

    fn told(sequence: u64) -> Told {
        Told {
            sequence,
            at: 951_827_696,
            owner: "alice".to_owned(),
            operation: "open".to_owned(),
            path: format!("docs/chapter-{sequence}.txt"),
            code: "FS_STALE_VERSION".to_owned(),
            step: "read the file again, then retry".to_owned(),
            enforced: true,
            line: String::new(),
            more: 0,
        }
    }

    fn board() -> Board {
        let mut board = Board::new("/srv/project");
        let start = Instant::now();
        let mut alice = owner("alice", 1000, 2);
        alice.open = vec!["docs/a.txt".to_owned(), "docs/b.txt".to_owned()];
        let activity = |operations| Activity {
            owners: vec![
                OwnerActivity {
                    operations,
                    ..alice.clone()
                },
                owner("bob/helper", 40, 0),
            ],
            ..Activity::default()
        };
        board.take(activity(1000), start);
        let mut second = activity(1250);
        second.refusals = vec![told(1), told(2)];
        second.sequence = 2;
        board.take(second, start + Duration::from_millis(500));
        board
    }

    fn shown(board: &Board, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, board)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        (0..height)
            .map(|row| {
                let line: String = (0..width).map(|column| buffer[(column, row)].symbol()).collect();
                line.trim_end().to_owned()
            })
            .collect()
    }

    // semantics: W9
    #[test]
    fn eighty_columns_and_twenty_four_lines_are_enough() {
        let expected = [
            " unclobber top: /srv/project                         2 owners, 500 operations/s",
            " owners ────────────────────────────────────────────────────────────────────────",
            "OWNER                   OPS/S      OPS     READ  REFUSED FILE (* open)",
            "alice                     500     1250      100        2 * docs/a.txt +1",
            "bob/helper                  0       40        4        0 src/main.rs",
        ];
        let lines = shown(&board(), 80, 24);
        assert_eq!(lines[..5], expected, "{lines:#?}");
        let refusals = lines.iter().position(|line| line.starts_with(" refused")).unwrap();
        assert_eq!(
            lines[refusals + 1..refusals + 5],
            [
                "12:34:56  alice  open docs/chapter-1.txt",
                "          FS_STALE_VERSION: read the file again, then retry",
                "12:34:56  alice  open docs/chapter-2.txt",
                "          FS_STALE_VERSION: read the file again, then retry",
            ]
        );
        assert_eq!(
            lines[23],
            " q quit   p pause   up/down scroll the owners   times are UTC"
        );
    }

    #[test]
    fn repeats_are_one_entry_and_a_count() {
        let mut board = board();
        let again = |sequence| Told {
            path: "docs/chapter-2.txt".to_owned(),
            ..told(sequence)
        };
        let more = Activity {
            refusals: (3..50).map(again).chain([Told { more: 1, ..again(51) }]).collect(),
            sequence: 51,
            ..Activity::default()
        };
        board.take(more, Instant::now());
        let lines = shown(&board, 80, 24);
        let found: Vec<&String> = lines.iter().filter(|line| line.contains("chapter")).collect();
        assert_eq!(found.len(), 2, "{lines:#?}");
        assert!(
            found[1].contains("open (50 times) docs/chapter-2.txt") || found[1].contains("(50 times) open"),
            "{lines:#?}"
        );
    }

    #[test]
    fn any_size_can_be_drawn() {
        let mut board = board();
        for (width, height) in [(1, 1), (10, 3), (40, 10), (200, 60)] {
            shown(&board, width, height);
        }
        board.pause();
        board.scroll(1);
        let lines = shown(&board, 80, 24);
        assert!(lines[3].starts_with("bob/helper"), "{lines:#?}");
        assert!(lines[23].contains("PAUSED"));
        board.scroll(-5);
        assert!(shown(&board, 80, 24)[3].starts_with("alice"));
        let empty = shown(&Board::new("/w"), 80, 24);
        assert!(empty.iter().any(|line| line.contains("nobody works")), "{empty:#?}");
    }

    #[test]
    fn the_end_of_a_path_is_shown() {
        assert_eq!(end_of("abc", 3), "abc");
        assert_eq!(end_of("a/long/path", 6), "…/path");
        assert_eq!(end_of("abc", 1), "…");
    }
}
