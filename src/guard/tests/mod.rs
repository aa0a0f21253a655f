//! Tests of the semantics. A comment `semantics: D3` above a test names the rules it shows.

mod decide;
mod grade;
mod levels;
mod model;
mod records;
mod refusal;
mod standing;

use super::*;

/// Three owners who can be told apart.
const A: OwnerId = OwnerId(1);
const B: OwnerId = OwnerId(2);
const C: OwnerId = OwnerId(3);

/// Processes.
const P: Process = Process { tgid: 10, start: 1 };
const Q: Process = Process { tgid: 11, start: 2 };

/// Two files.
const F: FileKey = FileKey {
    dev: 1,
    ino: 1,
    generation: 1,
};
const G: FileKey = FileKey {
    dev: 1,
    ino: 2,
    generation: 1,
};

/// The token of the `n`th version.
fn token(n: u64) -> Token {
    Token {
        size: n,
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
    }
}

/// The change that made generation `n`.
fn change(n: u64, author: Author) -> Change {
    Change {
        generation: Generation(n),
        author,
        at: Timestamp {
            sec: i64::try_from(n).unwrap(),
            nsec: 0,
        },
    }
}

fn by(owner: OwnerId) -> Author {
    Author::Owner(owner)
}
