//! `unclobber top`: a live view of what owners are doing, in the terminal.
//!
//! It leaves the terminal as it found it, however it ends, and never keeps a guard alive.

use std::io::{self, IsTerminal, Stdout};
use std::panic;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::crossterm::{cursor, execute};

use super::args::TopArgs;
use super::guarding;
use super::output::Problem;
use super::place;
use super::top_screen::{Board, draw};
use crate::control::{Client, ClientError, Surroundings};
use crate::sys::{self, Signals};

/// How long to wait for a key before looking at everything else.
const TICK: Duration = Duration::from_millis(100);
/// Signals that end the view.
const ENDING: [i32; 4] = [sys::SIGTERM, sys::SIGHUP, sys::SIGINT, sys::SIGQUIT];

/// Shows the view until somebody ends it.
pub(crate) fn top(args: &TopArgs) -> Result<ExitCode, Problem> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(
            Problem::new("cannot show the live view", "it needs a terminal for input and output")
                .hint("for programs and pipes: `unclobber status --json`"),
        );
    }
    let (mut client, root) = find(args.dir.as_deref())?;
    let mut board = Board::new(&root);
    look(&mut client, &mut board)?;
    let fail = |error: io::Error| Problem::new("cannot use the terminal", error);
    let signals = Signals::hold(&ENDING).map_err(|error| Problem::new("cannot hold signals back", error))?;
    let mut screen = Screen::begin().map_err(fail)?;
    let ended = watch(&mut client, &mut board, &mut screen, &signals, args.interval);
    // Before anything is said: what is said must not go to the other screen.
    drop(screen);
    ended
}

fn watch(
    client: &mut Client,
    board: &mut Board,
    screen: &mut Screen,
    signals: &Signals,
    interval: Duration,
) -> Result<ExitCode, Problem> {
    let fail = |error: io::Error| Problem::new("the terminal has gone", error);
    let mut due = Instant::now() + interval;
    let mut stale = true;
    loop {
        if std::mem::take(&mut stale) {
            screen.terminal.draw(|frame| draw(frame, board)).map_err(fail)?;
        }
        let wait = TICK.min(due.saturating_duration_since(Instant::now()));
        if event::poll(wait).map_err(fail)? {
            match event::read().map_err(fail)? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if ends(key.code, key.modifiers) {
                        return Ok(ExitCode::SUCCESS);
                    }
                    press(board, key.code);
                    stale = true;
                }
                Event::Resize(..) => stale = true,
                Event::Key(_) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_) => {}
            }
        }
        let signalled = signals.next();
        if signalled
            .map_err(|error| Problem::new("cannot read signals", error))?
            .is_some()
        {
            return Ok(ExitCode::SUCCESS);
        }
        if Instant::now() >= due {
            due = Instant::now() + interval;
            if !board.is_paused() {
                look(client, board)?;
                stale = true;
            }
        }
    }
}

fn ends(code: KeyCode, modifiers: KeyModifiers) -> bool {
    if modifiers.contains(KeyModifiers::CONTROL) {
        return matches!(code, KeyCode::Char('c' | 'd'));
    }
    matches!(code, KeyCode::Char('q' | 'Q') | KeyCode::Esc)
}

fn press(board: &mut Board, code: KeyCode) {
    if matches!(code, KeyCode::Char('p' | ' ')) {
        board.pause();
    } else if matches!(code, KeyCode::Char('j') | KeyCode::Down) {
        board.scroll(1);
    } else if matches!(code, KeyCode::Char('k') | KeyCode::Up) {
        board.scroll(-1);
    }
}

fn look(client: &mut Client, board: &mut Board) -> Result<(), Problem> {
    match client.activity(board.sequence()) {
        Ok(activity) => {
            board.take(activity, Instant::now());
            Ok(())
        }
        Err(ClientError::Broken(_)) => Err(Problem::new("the live view has ended", "the guard has ended").hint(
            "the directory is whole; `unclobber status` says whether a dead mount is left, and what to do about it",
        )),
        Err(error) => Err(guarding::client_problem("cannot follow the guard", &error)),
    }
}

/// The guard of a directory; without one that of the current directory, else the only one there is.
fn find(dir: Option<&Path>) -> Result<(Client, String), Problem> {
    let place = place::resolve(dir.unwrap_or_else(|| Path::new(".")))?;
    let wanted = match &place.guarded {
        Some(guarded) => guarded.guard.clone(),
        None => guarding::id_of(&place)?,
    };
    let running = running();
    let named = running.iter().position(|(id, _)| *id == wanted);
    let chosen = match (named, dir, running.as_slice()) {
        (Some(index), _, _) => index,
        (None, None, [_]) => 0,
        (None, Some(dir), _) => {
            return Err(
                Problem::new(format!("cannot watch {}", dir.display()), "no guard of yours serves it")
                    .hint("`unclobber status` lists all of them"),
            );
        }
        (None, None, []) => {
            return Err(Problem::new("nothing to watch", "nothing is guarded")
                .hint("`unclobber run -- CMD` runs a command in a guarded view"));
        }
        (None, None, _) => {
            return Err(
                Problem::new("cannot choose what to watch", "several directories are guarded")
                    .hint("name one of them: `unclobber status` lists them"),
            );
        }
    };
    let Some((_, mut client)) = running.into_iter().nth(chosen) else {
        return Err(Problem::new("nothing to watch", "the guard has ended"));
    };
    let status = client.status();
    let status = status.map_err(|error| guarding::client_problem("cannot follow the guard", &error))?;
    Ok((client, status.root))
}

fn running() -> Vec<(String, Client)> {
    let mut found = Vec::new();
    for dir in Surroundings::real().existing() {
        for id in dir.guards().unwrap_or_default() {
            if let Some(client) = Client::open(&dir, &id) {
                found.push((id, client));
            }
        }
    }
    found
}

/// The terminal, on its other screen and in raw mode until this is dropped.
struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    fn begin() -> io::Result<Self> {
        // What a panic says would be lost on the other screen.
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            before(info);
        }));
        enable_raw_mode()?;
        let entered = execute!(io::stdout(), EnterAlternateScreen, cursor::Hide);
        match entered.and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout()))) {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Puts the terminal back; nothing more can be done where that fails, since it has gone then.
fn restore() {
    let left = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
    let cooked = disable_raw_mode();
    if let Err(error) = left.and(cooked) {
        log::debug!("the terminal could not be put back: {error}");
    }
}
