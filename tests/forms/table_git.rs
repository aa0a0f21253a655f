//! git, on files that it tracks and that it does not.

use crate::form::Act::{Harmless, ReadsFirst, Remove, Replace};
use crate::form::Situation::{self, ForeignByOutsider, ForeignByOwner, StaleByOutsider, StaleByOwner};
use crate::form::{Form, Tells, form};

/// The target is tracked, and what stands in it was never committed.
const MODIFIED: &str = "git init -q -b main . && echo committed >f && git add f && git commit -q -m one && rm f";
/// The target is not tracked.
const UNTRACKED: &str = "git init -q -b main . && git add s && git commit -q -m one";
/// The target is committed as it stands, and another branch holds something else.
const COMMITTED: &str = "git init -q -b main . && git add f && git commit -q -m one && git switch -q -c other && \
                         echo other >f && git commit -q -a -m two && git switch -q main";
/// git compares a clean file with its index and refuses by itself when somebody has changed it.
const CLEAN_ONLY: &[Situation] = &[StaleByOwner, StaleByOutsider, ForeignByOwner, ForeignByOutsider];

pub(crate) const FORMS: &[Form] = &[
    form("git checkout --", Remove, "git checkout -q -- f")
        .setup(MODIFIED)
        .needs(&["git"]),
    form("git checkout -f", Remove, "git checkout -q -f main")
        .setup(MODIFIED)
        .needs(&["git"]),
    form("git restore", Remove, "git restore f")
        .setup(MODIFIED)
        .needs(&["git"]),
    form("git checkout-index -f", Remove, "git checkout-index -f f")
        .setup(MODIFIED)
        .needs(&["git"]),
    form("git reset --hard", Remove, "git reset -q --hard")
        .setup(MODIFIED)
        .needs(&["git"]),
    form("git stash", ReadsFirst, "git stash -q")
        .setup(MODIFIED)
        .needs(&["git"]),
    form("git rm -f", Remove, "git rm -q -f f")
        .setup(MODIFIED)
        .needs(&["git"]),
    form("git mv", Remove, "git mv f g").setup(MODIFIED).needs(&["git"]),
    form("git mv -f", Replace, "git mv -f s f")
        .setup(UNTRACKED)
        .needs(&["git"]),
    form("git clean", Remove, "git clean -q -f f")
        .setup(UNTRACKED)
        .needs(&["git"]),
    form(
        "git diff --output",
        Replace,
        "git diff --no-index --output=f s /dev/null",
    )
    .needs(&["git"]),
    form("git apply", ReadsFirst, "git apply p")
        .setup("printf '%s\\n' '--- a/f' '+++ b/f' '@@ -2,2 +2,2 @@' '-old line' '+new line' ' last line' >p")
        .needs(&["git"]),
    // What is clean is in git's own store too, so that only the effect is compared.
    form("git switch", Harmless, "git switch -q other")
        .after(COMMITTED)
        .needs(&["git"])
        .without(CLEAN_ONLY),
    form("git merge", Harmless, "git merge -q other")
        .after(COMMITTED)
        .needs(&["git"])
        .without(CLEAN_ONLY),
    form("git rebase", Harmless, "git rebase -q other")
        .after(COMMITTED)
        .needs(&["git"])
        .without(CLEAN_ONLY),
    form("git read-tree -u", Harmless, "git read-tree -u --reset other")
        .after(COMMITTED)
        .needs(&["git"])
        .without(CLEAN_ONLY)
        .tells(Tells::Status),
];
