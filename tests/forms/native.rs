//! What a form does on a plain directory: the measure for what it may do in the guarded one.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use crate::common::session::Session;
use crate::common::snapshot::Snapshot;
use crate::common::tree::Tree;
use crate::form::Form;

/// Before and after, and how the command ended.
#[derive(Debug, Clone)]
pub(crate) struct Native {
    pub(crate) before: Snapshot,
    pub(crate) after: Snapshot,
    pub(crate) code: i32,
    #[expect(dead_code, reason = "read through Debug, in the message of a failing row")]
    stderr: String,
}

type Cell = Arc<OnceLock<Native>>;

static KNOWN: LazyLock<Mutex<HashMap<(&'static str, u32), Cell>>> = LazyLock::new(Mutex::default);

/// The form on a plain directory whose target holds that version of the content. Each is run once.
pub(crate) fn of(form: &Form, version: u32) -> Native {
    let cell = KNOWN
        .lock()
        .expect("the table of native runs")
        .entry((form.name, version))
        .or_default()
        .clone();
    cell.get_or_init(|| measure(form, version)).clone()
}

fn measure(form: &Form, version: u32) -> Native {
    let tree = Tree::new();
    let mut shell = Session::plain(&tree, "native");
    lay_out(&tree, &mut shell, form, Some(version));
    let directory = tree.at(form.directory());
    let before = look(&directory);
    let done = shell.at(&directory, form.command);
    Native {
        before,
        after: look(&directory),
        code: done.code,
        stderr: done.stderr,
    }
}

/// What is compared of a form's directory: all but git's own files and archives, whose bytes hold times.
pub(crate) fn look(directory: &Path) -> Snapshot {
    Snapshot::of(directory, &[".git", "a.tar", "a.cpio", "a.zip"])
}

/// Makes a form's directory natively; without a version the target is left out.
pub(crate) fn lay_out(tree: &Tree, shell: &mut Session, form: &Form, version: Option<u32>) {
    let directory = tree.at(form.directory());
    fs::create_dir_all(&directory).expect("the form's directory");
    fs::write(directory.join("s"), "source text\nsecond line\n").expect("the form's source file");
    let done = shell.at(&directory, form.setup);
    assert!(done.ok(), "{}: setup: {done:?}", form.name);
    let Some(version) = version else {
        assert!(
            !directory.join(form.target).exists(),
            "{}: the setup leaves no target",
            form.name
        );
        return;
    };
    tree.write(&format!("{}/{}", form.directory(), form.target), &form.content(version));
    let done = shell.at(&directory, form.after);
    assert!(done.ok(), "{}: after: {done:?}", form.name);
}
