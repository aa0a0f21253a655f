//! What `unclobber top` shows, on 80 columns and 24 lines or more: owners, their files, and refusals as they happen.
//!
//! It never asks a guard and never touches a terminal: it draws what it was given.

use std::cell;
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
use crate::guard::{SHOW, Timestamp, printable};

/// Refusals remembered.
const REMEMBERED: usize = 200;
/// Where columns begin depends on these.
const NUMBER_WIDTH: u16 = 8;

/// Lines that a refusal takes which is not cleared.
const OPEN_LINES: usize = 3;

/// A refusal.
#[derive(Debug)]
struct Entry {
    told: Told,
    /// How many times it happened.
    times: u64,
    /// Its step was taken since.
    settled: bool,
}

impl Entry {
    fn lines(&self) -> usize {
        if self.settled { 1 } else { OPEN_LINES }
    }

    /// Whether it is of the same change by the same owner.
    fn is_of(&self, told: &Told) -> bool {
        let of = |told: &Told| (told.owner.clone(), told.operation.clone(), told.path.clone());
        of(&self.told) == of(told)
    }
}

/// What is known, from look to look.
#[derive(Debug)]
pub(crate) struct Board {
    root: String,
    activity: Activity,
    refusals: VecDeque<Entry>,
    /// Requests a second, by owner.
    rates: HashMap<String, u64>,
    before: Option<(HashMap<String, u64>, Instant)>,
    paused: bool,
    first: usize,
    /// Owners for which there was room when this was drawn last.
    room: cell::Cell<usize>,
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
            room: cell::Cell::new(1),
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
        let last = self.activity.owners.len().saturating_sub(self.room.get());
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
            // The same again is one entry, where it happened last.
            let known = self.refusals.iter().position(|entry| entry.told.is_like(told));
            let before = known.and_then(|at| self.refusals.remove(at));
            self.refusals.push_back(Entry {
                told: told.clone(),
                times: before.map_or(0, |entry| entry.times) + 1 + told.more,
                settled: false,
            });
        }
        self.settle(&activity);
        while self.refusals.len() > REMEMBERED {
            self.refusals.pop_front();
        }
        self.activity = activity;
        self.scroll(0);
    }

    /// Notes what has become of refusals: names that are gone are of no interest any more.
    fn settle(&mut self, activity: &Activity) {
        let of = |all: &VecDeque<Entry>, numbers: &[u64]| -> Vec<Told> {
            let told = all.iter().map(|entry| &entry.told);
            told.filter(|told| numbers.contains(&told.sequence)).cloned().collect()
        };
        for told in of(&self.refusals, &activity.settled) {
            let same = self.refusals.iter_mut().filter(|entry| entry.is_of(&told));
            same.for_each(|entry| entry.settled = true);
        }
        for told in of(&self.refusals, &activity.gone) {
            self.refusals.retain(|entry| !entry.is_of(&told));
        }
    }

    /// Those for which there is room, in their order: the latest that are not cleared first, then the latest of the others.
    fn chosen(&self, room: usize) -> Vec<&Entry> {
        let (mut left, mut chosen) = (room, vec![false; self.refusals.len()]);
        for settled in [false, true] {
            let of_kind = self.refusals.iter().zip(&mut chosen).rev();
            for (entry, taken) in of_kind.filter(|(entry, _)| entry.settled == settled) {
                if entry.lines() > left {
                    break;
                }
                left -= entry.lines();
                *taken = true;
            }
        }
        let both = self.refusals.iter().zip(chosen);
        both.filter(|(_, taken)| *taken).map(|(entry, _)| entry).collect()
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
        Constraint::Percentage(55),
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
    let room = usize::from(area.height.saturating_sub(2));
    board.room.set(room.max(1));
    let first = board.first.min(board.activity.owners.len().saturating_sub(room));
    let below = (board.activity.owners.len() + board.activity.more_owners).saturating_sub(first + room);
    let title = match (first, below) {
        (0, 0) => " owners ".to_owned(),
        (above, 0) => format!(" owners ({above} more above) "),
        (0, below) => format!(" owners ({below} more below) "),
        (above, below) => format!(" owners ({above} more above, {below} more below) "),
    };
    let block = Block::new().borders(Borders::TOP).title(title);
    let name_width = area.width / 4;
    let file_width = usize::from(area.width.saturating_sub(name_width + 4 * (NUMBER_WIDTH + 1) + 1));
    let rows = board.activity.owners.iter().skip(first).map(|owner| {
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
    let open = board.refusals.iter().filter(|entry| !entry.settled).count();
    let room = usize::from(area.height.saturating_sub(1));
    let shown = board.chosen(room);
    let mut title = format!(
        " refused: {open} to be cleared, {} cleared ",
        board.refusals.len() - open
    );
    if shown.len() < board.refusals.len() {
        title = format!(
            "{title}({} not shown: unclobber log --refused) ",
            board.refusals.len() - shown.len()
        );
    }
    let block = Block::new().borders(Borders::TOP).title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if board.refusals.is_empty() {
        return frame.render_widget(Paragraph::new("nothing since this view began"), inner);
    }
    let width = usize::from(inner.width);
    let lines: Vec<Line<'_>> = shown
        .into_iter()
        .flat_map(|entry| refusal(board, entry, width))
        .collect();
    frame.render_widget(Paragraph::new(lines), inner);
}

/// Who was refused what; and while it is not cleared, why and what clears it.
fn refusal(board: &Board, entry: &Entry, width: usize) -> Vec<Line<'static>> {
    let told = &entry.told;
    let at = clock::utc(Timestamp { sec: told.at, nsec: 0 });
    let time = at.get(11..19).unwrap_or_default();
    let times = match entry.times {
        1 => String::new(),
        times => format!("({times} times) "),
    };
    let end = match (entry.settled, told.enforced) {
        (true, _) => " - cleared since",
        (false, false) => " - would be refused",
        (false, true) => "",
    };
    let start = format!("{time}  {}  {times}{} ", printable(&told.owner), told.operation);
    let room = width.saturating_sub(start.chars().count() + end.len());
    let what = format!("{start}{}{end}", end_of(&printable(&told.path), room));
    if entry.settled {
        return vec![Line::from(Span::styled(what, Style::new().add_modifier(Modifier::DIM)))];
    }
    let room = width.saturating_sub(8);
    let cause = format!("  why:  {}", start_of(&told.cause, room));
    let step = match &told.kept {
        Some(id) => format!("  not in it, but kept: {SHOW} {id}"),
        None => format!("  do:   {}", start_of(&told.step, room)),
    };
    vec![
        Line::from(what),
        Line::from(cause),
        Line::from(Span::styled(step, board.style(Color::Red))),
    ]
}

fn draw_keys(frame: &mut Frame<'_>, board: &Board, area: Rect) {
    let pause = if board.paused { "p go on (PAUSED)" } else { "p pause" };
    let mut keys = " q quit".to_owned();
    for part in [
        pause,
        "up/down owners",
        "may I write it? unclobber why FILE",
        "times: UTC",
    ] {
        // What there is no room for is left out whole.
        if keys.len() + part.len() + 2 <= usize::from(area.width) {
            keys.push_str("  ");
            keys.push_str(part);
        }
    }
    let style = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(Paragraph::new(keys).style(style), area);
}

/// As much of the beginning of a text as there is room for.
fn start_of(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let start: String = text.chars().take(room.saturating_sub(1)).collect();
    format!("{start}…")
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
            would_refuse: 0,
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
            cause: "changed by owner \"bob\" 3 s ago since \"alice\" read it".to_owned(),
            kept: None,
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
            lines[refusals..refusals + 7],
            [
                " refused: 2 to be cleared, 0 cleared ───────────────────────────────────────────",
                "12:34:56  alice  open docs/chapter-1.txt",
                "  why:  changed by owner \"bob\" 3 s ago since \"alice\" read it",
                "  do:   read the file again, then retry",
                "12:34:56  alice  open docs/chapter-2.txt",
                "  why:  changed by owner \"bob\" 3 s ago since \"alice\" read it",
                "  do:   read the file again, then retry",
            ]
        );
        assert_eq!(
            lines[23],
            " q quit  p pause  up/down owners  may I write it? unclobber why FILE  times: UTC"
        );
    }

    // semantics: W9
    #[test]
    fn what_is_cleared_makes_room_and_what_is_gone_goes() {
        let mut board = board();
        let more = |refusals: Vec<Told>, settled: Vec<u64>, gone: Vec<u64>| Activity {
            sequence: refusals.last().map_or(9, |told| told.sequence),
            refusals,
            settled,
            gone,
            ..Activity::default()
        };
        board.take(more((3..=8).map(told).collect(), vec![1, 3], vec![2]), Instant::now());
        let lines = shown(&board, 80, 24);
        let of = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!(
            (
                of("chapter-2.txt"),
                of(" refused: 5 to be cleared, 2 cleared (3 not shown:")
            ),
            (0, 1),
            "{lines:#?}"
        );
        for number in 3..=8 {
            assert_eq!(
                of(&format!("chapter-{number}.txt")),
                usize::from(number > 4),
                "{lines:#?}"
            );
        }
        board.take(more(Vec::new(), vec![1, 3, 5, 8], Vec::new()), Instant::now());
        let lines = shown(&board, 80, 24);
        let of = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!((of("cleared since"), of("do:   read")), (3, 3), "{lines:#?}");
        assert_eq!(of("chapter-8.txt - cleared since"), 1, "{lines:#?}");
        // Refused again, it is to be cleared again.
        let mut board = Board::new("/w");
        board.take(more(vec![told(1)], vec![1], Vec::new()), Instant::now());
        assert!(shown(&board, 80, 24).iter().any(|line| line.contains("cleared since")));
        let again = Told {
            path: told(1).path,
            ..told(2)
        };
        board.take(more(vec![again], Vec::new(), Vec::new()), Instant::now());
        let lines = shown(&board, 80, 24);
        assert!(lines.iter().any(|line| line.contains("do:   read")), "{lines:#?}");
    }

    #[test]
    fn it_says_how_many_owners_are_not_shown() {
        let mut board = Board::new("/w");
        let activity = Activity {
            owners: (0..30).map(|number| owner(&format!("o{number}"), 0, 0)).collect(),
            more_owners: 5,
            ..Activity::default()
        };
        board.take(activity, Instant::now());
        let rows = |lines: &[String]| lines.iter().filter(|line| line.starts_with('o')).count();
        let lines = shown(&board, 80, 24);
        let below = 35 - rows(&lines);
        assert!(
            lines[1].starts_with(&format!(" owners ({below} more below) ")),
            "{lines:#?}"
        );
        board.scroll(3);
        let lines = shown(&board, 80, 24);
        assert!(
            lines[1].starts_with(&format!(" owners (3 more above, {} more below) ", below - 3)),
            "{lines:#?}"
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

    // semantics: W8
    #[test]
    fn refusals_that_alternate_are_one_entry_each() {
        let mut board = board();
        for sequence in 3..43 {
            let again = Told {
                path: format!("docs/t{}.txt", sequence % 2),
                ..told(sequence)
            };
            let more = Activity {
                refusals: vec![again],
                sequence,
                ..Activity::default()
            };
            board.take(more, Instant::now());
        }
        let lines = shown(&board, 80, 24);
        let title = lines.iter().find(|line| line.starts_with(" refused")).unwrap();
        assert!(title.starts_with(" refused: 4 to be cleared"), "{lines:#?}");
        for name in ["t0", "t1"] {
            let of: Vec<&String> = lines.iter().filter(|line| line.contains(name)).collect();
            assert!(of.len() == 1 && of[0].contains("(20 times)"), "{lines:#?}");
        }
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
        assert!(
            lines[3].starts_with("alice"),
            "all fit, and still it scrolls: {lines:#?}"
        );
        assert_eq!(
            lines[23],
            " q quit  p go on (PAUSED)  up/down owners  may I write it? unclobber why FILE"
        );
        assert_eq!(shown(&board, 40, 10)[9], " q quit  p go on (PAUSED)  times: UTC");
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
