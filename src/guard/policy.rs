//! What a mount was asked to do: the options that change decisions, one type each.
//!
//! Owns the names and defaults of the options. Never reads them from anywhere: parsing belongs to the command line.

/// Whether a refusal is carried out (`--mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Refuse what the table refuses.
    #[default]
    Enforce,
    /// Record what would be refused, refuse nothing, and do what the backing filesystem would.
    Observe,
}

/// What happens to content the owner has never seen (`--unseen`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UnseenRule {
    /// Refuse to change it.
    #[default]
    Refuse,
    /// Refuse only where the owner's view is stale or somebody else changed the file; keep what is displaced.
    Allow,
}

/// What removing a file needs (`--remove`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RemoveRule {
    /// A file nobody changed since the guard began may be removed unseen; its content is kept.
    #[default]
    Baseline,
    /// Removing needs a current view, as a replacement does.
    Observed,
}

/// Whose views count (`--view`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ViewRule {
    /// The owner's, and the calling process's own where that is older than a foreign change.
    #[default]
    Process,
    /// The owner's alone.
    Owner,
}

/// How a file is created whose caller did not say `O_EXCL` (`--create`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CreateRule {
    /// Its data goes to an unnamed file that is linked to the name when it is whole.
    #[default]
    Staged,
    /// The name is claimed at once.
    Direct,
}

/// Who sees to it that a publication survives a crash (`--durability`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DurabilityRule {
    /// The caller, by `fsync`.
    #[default]
    Caller,
    /// The mount, at every publication.
    Publish,
}

/// What the kernel may remember of names and attributes (`--cache`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CacheRule {
    /// As long as nobody changes them: what others change is seen a moment later, and at once by every open and change.
    #[default]
    Coherent,
    /// Nothing.
    Strict,
}

/// Who moves the data of files that need no judgement (`--passthrough`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PassthroughRule {
    /// The kernel, where it can.
    #[default]
    On,
    /// The daemon.
    Off,
}

/// The options of one mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Policy {
    /// `--mode`.
    pub mode: Mode,
    /// `--unseen`.
    pub unseen: UnseenRule,
    /// `--remove`.
    pub remove: RemoveRule,
    /// `--view`.
    pub view: ViewRule,
    /// `--create`.
    pub create: CreateRule,
    /// `--durability`.
    pub durability: DurabilityRule,
    /// `--cache`.
    pub cache: CacheRule,
    /// `--passthrough`.
    pub passthrough: PassthroughRule,
}
