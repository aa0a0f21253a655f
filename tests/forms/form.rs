//! What a row of the table says: a form of change, how it is set up and run, and what must come of it.

/// What is there, and what owner A knows of it, when the form is run by A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Situation {
    /// Nobody has read it, nobody has changed it.
    Unseen,
    /// Owner B has read it; A has only listed and examined it.
    SeenByAnother,
    /// A read it, then B read and rewrote it.
    StaleByOwner,
    /// A read it, then an outsider rewrote it.
    StaleByOutsider,
    /// B read and rewrote it; A never read it.
    ForeignByOwner,
    /// An outsider rewrote it since the guard began; A never read it.
    ForeignByOutsider,
    /// A child of A's shell has just read it.
    Current,
    /// A wrote it.
    Own,
}

/// What must come of a form in a situation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Refused with this code; the target is as it was.
    Refused(&'static str),
    /// Does exactly what it does on a plain directory.
    Allowed,
    /// As on a plain directory, although a first attempt was refused: the tool then reads the target by itself, and so
    /// observes it.
    AllowedInTheEnd,
    /// As on a plain directory, and the old content still stands somewhere in the backing tree.
    AllowedKept,
}

/// What the form means to do to its target, without asking first unless it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Whole content anew: O_TRUNC, rename over, exchange, link over.
    Replace,
    /// Part of the content.
    Edit,
    /// At the end, whatever is there.
    Append,
    /// Unlink or rename away, perhaps followed by a create.
    Remove,
    /// The tool opens the target for reading before it changes it.
    ReadsFirst,
    /// Changes the directory but destroys nothing of the target.
    Harmless,
    /// Leaves the target as it is, natively too: exclusive creation, metadata, a probe.
    Untouched,
}

/// How a person or program learns of the refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tells {
    /// An exit code other than 0 and the system's text for the errno.
    Errno,
    /// The same, with the errno of the removal that the tool tries when its first attempt is refused.
    ErrnoOfRemoval,
    /// An exit code other than 0; the text is the tool's own.
    Status,
    /// Nothing of its own, for the reason given; the guard's line is all there is.
    Nothing(&'static str),
    /// An exit code other than 0, and no refusal line: the kernel refuses a mapping without a request.
    StatusWithoutLine,
}

/// An outcome that the act alone does not give, and why.
pub(crate) type Exception = (Situation, Outcome, &'static str);

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [&'static str],
    /// The file whose content is at stake, in the form's own directory.
    pub(crate) target: &'static str,
    /// The name by which the form reaches it, which a refusal may give.
    pub(crate) named: &'static str,
    /// Run natively before the target is there.
    pub(crate) setup: &'static str,
    /// Run after the target is there: by whoever made it.
    pub(crate) after: &'static str,
    pub(crate) command: &'static str,
    pub(crate) act: Act,
    pub(crate) tells: Tells,
    pub(crate) exceptions: &'static [Exception],
    /// Situations in which the tool's own checks stop it, so that there is nothing to see.
    pub(crate) without: &'static [Situation],
}

pub(crate) const fn form(name: &'static str, act: Act, command: &'static str) -> Form {
    Form {
        name,
        needs: &[],
        target: "f",
        named: "f",
        setup: "",
        after: "",
        command,
        act,
        tells: Tells::Errno,
        exceptions: &[],
        without: &[],
    }
}

impl Form {
    pub(crate) const fn needs(mut self, needs: &'static [&'static str]) -> Form {
        self.needs = needs;
        self
    }

    pub(crate) const fn target(mut self, target: &'static str) -> Form {
        self.target = target;
        self.named = target;
        self
    }

    pub(crate) const fn named(mut self, named: &'static str) -> Form {
        self.named = named;
        self
    }

    pub(crate) const fn setup(mut self, setup: &'static str) -> Form {
        self.setup = setup;
        self
    }

    pub(crate) const fn after(mut self, after: &'static str) -> Form {
        self.after = after;
        self
    }

    pub(crate) const fn tells(mut self, tells: Tells) -> Form {
        self.tells = tells;
        self
    }

    pub(crate) const fn except(mut self, exceptions: &'static [Exception]) -> Form {
        self.exceptions = exceptions;
        self
    }

    pub(crate) const fn without(mut self, without: &'static [Situation]) -> Form {
        self.without = without;
        self
    }

    /// The directory of this form's own.
    pub(crate) fn directory(&self) -> String {
        let letter = |c: char| match c {
            '>' => 'G',
            '<' => 'L',
            '+' => 'P',
            '!' => 'B',
            '|' => 'I',
            '-' | '.' => c,
            _ if c.is_ascii_alphanumeric() => c,
            _ => '_',
        };
        self.name.chars().map(letter).collect()
    }

    /// What stands in the target at first, and after somebody else rewrote it. Both have one length: a version that is
    /// told apart by its size alone would miss the change.
    pub(crate) fn content(&self, version: u32) -> String {
        format!("{} v{version}\nold line\nlast line\n", self.directory())
    }

    /// What must come of this form in the situation: the decision table, then the form's own exceptions.
    pub(crate) fn expected(&self, situation: Situation) -> Outcome {
        let exception = self.exceptions.iter().find(|(at, _, _)| *at == situation);
        exception.map_or_else(|| expected(self.act, situation), |(_, outcome, _)| *outcome)
    }
}

fn expected(act: Act, situation: Situation) -> Outcome {
    use crate::common::{NOT_OBSERVED, STALE};
    let known = match situation {
        Situation::Current | Situation::Own => return Outcome::Allowed,
        Situation::Unseen | Situation::SeenByAnother => None,
        Situation::StaleByOwner | Situation::StaleByOutsider => Some(STALE),
        Situation::ForeignByOwner | Situation::ForeignByOutsider => Some(NOT_OBSERVED),
    };
    match act {
        Act::Replace | Act::Edit => Outcome::Refused(known.unwrap_or(NOT_OBSERVED)),
        Act::Remove => known.map_or(Outcome::AllowedKept, Outcome::Refused),
        Act::Append | Act::ReadsFirst | Act::Harmless | Act::Untouched => Outcome::Allowed,
    }
}
