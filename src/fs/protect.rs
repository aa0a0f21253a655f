//! The workspace's own file of rules: owners may read it and change nothing of it, or they could loosen what guards
//! others from them.
//!
//! The answer is `EROFS`: no tool answers that by unlinking and making anew, nor by changing permissions first, and it is
//! what is true of a file that nobody can change here.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Guard;
use super::caller::{At, Who};
use super::errno::{FsError, Result, errno_text, refusal_errno};
use super::events::level_name;
use super::explained::Operation;
use super::mount::Mount;
use crate::audit::Details;
use crate::clock;
use crate::guard::{Code, Intent, Level, Reason, Refusal, Step, There, Why};
use crate::rules::{FILE_NAME, IGNORE_NAME};
use crate::store::Node;

impl Mount {
    /// Refuses to bind, unbind or rename the name of the file of rules.
    pub(super) fn refuse_rules_name(&self, who: &Who, operation: &'static str, dir: &Node, name: &OsStr) -> Result<()> {
        if name == FILE_NAME && dir.id() == self.guard().store.root().id() {
            return self.refuse_rules(who, operation);
        }
        Ok(())
    }

    /// Refuses to change the file of rules, whatever name it was reached by.
    pub(super) fn refuse_rules_file(&self, who: &Who, operation: &'static str, node: &Node) -> Result<()> {
        if self.guard().is_rules_file(node) {
            return self.refuse_rules(who, operation);
        }
        Ok(())
    }

    /// Also where the mount only observes: the rules are not the owners' there either.
    fn refuse_rules(&self, who: &Who, operation: &'static str) -> Result<()> {
        if self.options().rules.writable {
            return Ok(());
        }
        let guard = self.guard();
        let reason = Reason {
            code: Code::RulesFixed,
            step: Step::ChangeOutside,
            why: Why::RulesFixed,
            intent: Intent::Edit,
            there: There::Regular,
        };
        let errno = refusal_errno(reason.code, reason.intent, reason.there);
        let refusal = Refusal {
            operation,
            path: FILE_NAME.to_owned(),
            code: reason.code,
            errno_text: errno_text(errno),
            owner: guard.owners().name(who.owner).to_string(),
            changed_by: None,
            changed_at: None,
            step: reason.step,
            why: reason.why,
            writer: None,
            kept: None,
        };
        let details = Details {
            actor: self.refused_actor(who),
            errno,
            level: level_name(Level::Guard),
            rule: reason.rule(),
            ..Details::default()
        };
        guard.events().refused(clock::now(), who.owner, true, refusal, details);
        Err(FsError::Refused(reason))
    }

    /// A name was bound or unbound, or what it leads to was changed: rules may say something else now.
    pub(super) fn note_rules(&self, dir: Option<&Arc<Node>>, name: &OsStr) {
        let is_root = || dir.is_some_and(|dir| dir.id() == self.guard().store.root().id());
        if name == IGNORE_NAME {
            if let Some(dir) = dir {
                self.guard().ignore_file_bound(dir);
                // What others change from now on is ignored, though nobody may ask about that before they do.
                self.guard().ignore_file(dir, None);
            }
            self.guard().places.fetch_add(1, Ordering::AcqRel);
        } else if name == FILE_NAME && is_root() {
            self.guard().rules_move.store(true, Ordering::Release);
        }
    }
}

impl Guard {
    /// Whether an operation would change the file of rules, or its name. A removal takes a name away, whatever it leads to.
    pub(super) fn is_rules_place(&self, at: &At, node: Option<&Node>, operation: Operation) -> bool {
        let root = self.store.root().id();
        let by_name = &*at.name == OsStr::new(FILE_NAME) && at.dir.as_ref().is_some_and(|dir| dir.id() == root);
        by_name || (operation != Operation::Remove && node.is_some_and(|node| self.is_rules_file(node)))
    }

    /// Whether somebody has changed the file of rules through a mount since the last call.
    pub(super) fn rules_moved(&self) -> bool {
        self.rules_move.swap(false, Ordering::AcqRel)
    }
}
