//! Standing between the terminal and the command: signals, job control, refusals, the end.
//!
//! The command is in this process's own group, so keys of the terminal reach it without help; what a process sends to
//! this one alone is passed on. This process never stops unless the command has stopped.

use std::time::{Duration, Instant};

use super::cleared;
use super::output::{Problem, complain, note, show_refusal};
use super::refusals::Refusals;
use crate::control::{Client, ClientError};
use crate::sys::{self, Signals, SysError, Terminal, Waited, consts};

/// What is held back from its effect while the command runs.
pub(crate) const HELD: [i32; 9] = [
    sys::SIGCHLD,
    sys::SIGINT,
    sys::SIGQUIT,
    sys::SIGTERM,
    sys::SIGHUP,
    sys::SIGUSR1,
    sys::SIGUSR2,
    sys::SIGTSTP,
    sys::SIGCONT,
];

/// The command and what it is watched with.
#[derive(Debug)]
pub(crate) struct Supervision<'a> {
    pub(crate) child: i32,
    pub(crate) signals: &'a Signals,
    pub(crate) terminal: Option<&'a Terminal>,
}

impl Supervision<'_> {
    /// Waits for the command's end; its exit code, and whether it left processes behind.
    pub(crate) fn until_end(&self, client: &mut Client, refusals: &mut Refusals) -> Result<(u8, bool), Problem> {
        let fail = |error: SysError| Problem::new("cannot wait for the command", error);
        let mut guard_lives = true;
        let mut telling = Telling::default();
        loop {
            let watched: Option<&dyn sys::Readable> = if guard_lives { Some(&*client) } else { None };
            let (signalled, told) = self
                .signals
                .wait_with(watched, telling.patience(refusals))
                .map_err(fail)?;
            if told {
                guard_lives = hear(client, refusals);
                telling.heard();
            }
            telling.show_if_due(client, refusals);
            if !signalled {
                continue;
            }
            while let Some(arrived) = self.signals.next().map_err(fail)? {
                self.pass_on(arrived).map_err(fail)?;
            }
            if let Some(code) = self.reap().map_err(fail)? {
                if let Some(Err(error)) = self.terminal.map(Terminal::take_back) {
                    log::debug!("{error}");
                }
                return Ok((code, self.survivors()));
            }
        }
    }

    fn pass_on(&self, arrived: sys::Arrived) -> Result<(), SysError> {
        let from_terminal = !arrived.by_process;
        let reaches_group = [sys::SIGINT, sys::SIGQUIT, sys::SIGTSTP].contains(&arrived.signal);
        if arrived.signal == sys::SIGCHLD || (from_terminal && reaches_group) {
            return Ok(());
        }
        match sys::kill(self.child, arrived.signal) {
            Err(error) if error.errno() != consts::ESRCH => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes note of every change; the exit code if the command has ended.
    fn reap(&self) -> Result<Option<u8>, SysError> {
        let mut code = None;
        loop {
            match sys::wait(-1, true, true) {
                Ok(None) => return Ok(code),
                Err(error) if error.errno() == consts::ECHILD => return Ok(code),
                Err(error) => return Err(error),
                Ok(Some((pid, _))) if i64::from(pid) != i64::from(self.child) => {}
                Ok(Some((_, Waited::Exited(status)))) => code = Some(u8::try_from(status).unwrap_or(1)),
                Ok(Some((_, Waited::Killed(signal)))) => code = Some(u8::try_from(128 + signal).unwrap_or(255)),
                Ok(Some((_, Waited::Stopped(signal)))) => sys::stop_self(signal)?,
                Ok(Some((_, Waited::Continued))) => {}
            }
        }
    }

    fn survivors(&self) -> bool {
        loop {
            match sys::wait(-1, true, true) {
                Ok(None) => return true,
                Ok(Some(_)) => {}
                Err(_) => return false,
            }
        }
    }
}

/// Holds refusals back for a moment, so that the program's own message about its failure, which it may write in
/// pieces, is whole and stands first.
#[derive(Debug, Default)]
struct Telling {
    due: Option<Instant>,
}

impl Telling {
    const MOMENT: Duration = Duration::from_millis(40);

    fn heard(&mut self) {
        self.due.get_or_insert_with(|| Instant::now() + Self::MOMENT);
    }

    /// How long may be waited for something else, in milliseconds.
    fn patience(&self, refusals: &Refusals) -> Option<u16> {
        let due = self.due.into_iter().chain(refusals.due()).min()?;
        let left = due.saturating_duration_since(Instant::now());
        Some(u16::try_from(left.as_millis()).unwrap_or(u16::MAX).saturating_add(1))
    }

    fn show_if_due(&mut self, client: &mut Client, refusals: &mut Refusals) {
        let now = Instant::now();
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            show(client, refusals);
        }
        refusals.repeats(Some(now)).iter().for_each(|line| show_refusal(line));
    }
}

/// Takes in what the guard tells; false when it has gone.
fn hear(client: &mut Client, refusals: &mut Refusals) -> bool {
    let lives = match client.read_events() {
        Ok(lives) => lives,
        Err(error) => {
            log::warn!("{error}");
            false
        }
    };
    if !lives {
        show(client, refusals);
        complain(
            "the guard has ended (was it killed?): this command cannot use the directory any more, which is whole; end the command \
             and run it anew",
        );
    }
    lives
}

fn show(client: &mut Client, refusals: &mut Refusals) {
    while let Some(refusal) = client.next_refusal() {
        let lines = refusals.take(&refusal, Instant::now());
        lines.iter().for_each(|line| show_refusal(line));
    }
}

/// Shows every refusal that has happened before now, and sums them up; `ended` is the mount whose end is to be waited for.
pub(crate) fn last_refusals(client: &mut Client, ended: Option<u64>, refusals: &mut Refusals) {
    match client.flush(ended) {
        Ok(()) => {}
        Err(ClientError::Broken(error)) => log::debug!("the guard ended before it was asked: {error}"),
        Err(error) => log::warn!("refusals may be missing: {error}"),
    }
    show(client, refusals);
    refusals.repeats(None).iter().for_each(|line| show_refusal(line));
    refusals.follow_up(|event| cleared::ask(client, event));
    refusals.summary().iter().for_each(|line| note(line));
}
