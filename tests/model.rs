//! Random operations of three owners and an outsider, through real mounts, against a reference model.
//!
//! `UNCLOBBER_MODEL_CASES` sets the number of runs, `UNCLOBBER_MODEL_SEED` the first seed.

#![expect(clippy::unwrap_used, reason = "what cannot be looked at fails the test")]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "most questions are about a few operations only"
)]

#[path = "model/ops.rs"]
mod ops;
#[path = "model/oracle.rs"]
mod oracle;
#[path = "model/predict.rs"]
mod predict;
#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod support;
#[path = "model/twin.rs"]
mod twin;
#[path = "model/world.rs"]
mod world;

use ops::{Hold, Op, PATHS};
use unclobber::guard::{CreateRule, Mode, Policy, RemoveRule, UnseenRule, ViewRule};
use world::{Actor, Setting, Step, World};

/// Runs when nothing else is asked for.
const CASES: u64 = 250;
/// What owners crowd on: a file and the link to it, two names that may be of one file, two files, one file.
const CROWDS: [[usize; 2]; 4] = [[0, 6], [1, 4], [0, 1], [3, 3]];
/// Steps of a run.
const STEPS: usize = 40;

/// A small generator of numbers, so that a seed means the same everywhere.
struct Dice {
    state: u64,
    /// Only the names of one or two files, so that owners meet more often.
    crowd: Option<[usize; 2]>,
    /// Mostly handles that stay open.
    holding: bool,
}

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % sides as u64).unwrap()
    }

    fn chance(&mut self, of: usize) -> bool {
        self.roll(of) == 0
    }

    /// Mostly a name of a file.
    fn path(&mut self) -> usize {
        if let Some(paths) = self.crowd {
            return paths[self.roll(2)];
        }
        let at = self.roll(24);
        if at < 18 { at % 5 } else { at % PATHS.len() }
    }

    fn size(&mut self) -> u64 {
        [0, 0, 3, 20][self.roll(4)]
    }
}

fn policy(dice: &mut Dice) -> Policy {
    let mode = if dice.chance(8) { Mode::Observe } else { Mode::Enforce };
    let unseen = if dice.chance(3) {
        UnseenRule::Allow
    } else {
        UnseenRule::Refuse
    };
    let remove = if dice.chance(5) {
        RemoveRule::Observed
    } else {
        RemoveRule::Baseline
    };
    let process = dice.chance(3);
    let create = if dice.chance(3) {
        CreateRule::Direct
    } else {
        CreateRule::Staged
    };
    let view = if process { ViewRule::Process } else { ViewRule::Owner };
    Policy {
        mode,
        unseen,
        remove,
        view,
        create,
        ..Policy::default()
    }
}

fn hold(dice: &mut Dice) -> Hold {
    let how = [
        Hold::Read,
        Hold::Write,
        Hold::ReadWrite,
        Hold::Append,
        Hold::Empty,
        Hold::Truncate,
        Hold::Create,
    ];
    how[dice.roll(how.len())]
}

/// What a run about open handles begins with.
fn opening(dice: &mut Dice, tag: usize) -> Op {
    let at = dice.path();
    if tag == 0 && dice.chance(2) {
        Op::Read(at)
    } else {
        Op::Hold(at, hold(dice))
    }
}

fn owners_op(dice: &mut Dice) -> Op {
    let at = dice.path();
    let kind = if dice.holding && dice.chance(2) {
        44 + dice.roll(10)
    } else {
        dice.roll(54)
    };
    match kind {
        0..=8 => Op::Read(at),
        9..=10 => Op::Stat(at),
        11..=14 => Op::Save(at),
        15 => Op::Overwrite(at),
        16..=17 => Op::Exclusive(at),
        18..=19 => Op::Edit(at),
        20 => Op::EditBlind(at),
        21..=22 => Op::Modify(at),
        23 => Op::Append(at, false),
        24..=25 => Op::Append(at, true),
        26 => Op::Truncate(at, dice.size()),
        27 => Op::TruncateSame(at),
        28 => Op::Allocate(at),
        29 => Op::Copy(at, dice.path()),
        30 => Op::Touch(at),
        31..=33 => Op::Rename(at, dice.path()),
        34 => Op::RenameFree(at, dice.path()),
        35 => Op::Exchange(at, dice.path()),
        36..=37 => Op::Link(at, dice.path()),
        38..=40 => Op::Unlink(at),
        41 => {
            if dice.chance(2) {
                Op::Mkdir(at)
            } else {
                Op::Rmdir(at)
            }
        }
        42 => Op::Chmod(at, dice.chance(2)),
        43 => Op::Times(at),
        44..=46 => Op::Hold(at, hold(dice)),
        47..=48 => Op::HeldWrite(at),
        49 => Op::HeldRead(at),
        50 => Op::HeldFlush(at),
        51 => Op::HeldSync(at),
        52 => {
            if dice.chance(3) {
                Op::HeldAllocate(at)
            } else {
                Op::HeldTruncate(at, dice.size())
            }
        }
        _ => Op::HeldClose(at),
    }
}

fn outsiders_op(dice: &mut Dice) -> Op {
    let at = dice.path();
    match dice.roll(10) {
        0..=1 => Op::Scribble(at),
        2 => Op::Save(at),
        3..=4 => Op::Supplant(at),
        5..=6 => Op::Unlink(at),
        7 => Op::Exclusive(at),
        8 => Op::Chmod(at, dice.chance(2)),
        _ => Op::Rename(at, dice.path()),
    }
}

fn generate(seed: u64) -> (Setting, Vec<Step>) {
    let mut dice = Dice {
        state: seed,
        crowd: None,
        holding: false,
    };
    let policies = [policy(&mut dice), policy(&mut dice), policy(&mut dice)];
    let setting = Setting {
        policies,
        linked: dice.chance(2),
    };
    if dice.chance(2) {
        dice.crowd = Some(CROWDS[dice.roll(CROWDS.len())]);
    }
    dice.holding = dice.chance(2);
    // The first meetings are the most telling, and a crowd has them soon.
    let steps = if dice.crowd.is_some() { STEPS / 2 } else { STEPS };
    let steps = (0..steps).map(|tag| {
        let actor = [
            Actor::Owner(0),
            Actor::Owner(0),
            Actor::Owner(0),
            Actor::Owner(1),
            Actor::Owner(1),
            Actor::Owner(2),
            Actor::Outsider,
        ];
        let actor = if dice.holding && tag < 2 {
            Actor::Owner(0)
        } else {
            actor[dice.roll(actor.len())]
        };
        let op = if dice.holding && tag < 2 {
            // Before anybody else has come by the file.
            opening(&mut dice, tag)
        } else if actor == Actor::Outsider {
            outsiders_op(&mut dice)
        } else {
            owners_op(&mut dice)
        };
        Step {
            actor,
            op,
            tag: u32::try_from(tag).unwrap(),
            look: dice.chance(if dice.holding { 30 } else { 10 }),
        }
    });
    (setting, steps.collect())
}

fn run(setting: Setting, steps: &[Step]) -> Result<(), String> {
    let mut world = World::new(setting);
    for (at, step) in steps.iter().enumerate() {
        world
            .step(*step)
            .map_err(|error| format!("step {at}, {step:?}: {error}"))?;
    }
    world.look()?;
    world.look_in_attic()
}

/// The fewest of the steps that still fail.
fn shorten(setting: Setting, mut steps: Vec<Step>) -> Vec<Step> {
    let mut at = steps.len();
    while at > 0 {
        at -= 1;
        let mut fewer = steps.clone();
        fewer.remove(at);
        if run(setting, &fewer).is_err() {
            steps = fewer;
            at = at.min(steps.len());
        }
    }
    steps
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(default, |text| text.parse().expect("a number"))
}

// semantics: A1 A3 O3 O4 O5 O10 V1 V2 V3 V4 V6 V7 D4 D5 D6 D8 D17 D20 D21 D23 P1 P2 P3
#[test]
fn three_owners_and_an_outsider_against_the_model() {
    let first = number("UNCLOBBER_MODEL_SEED", 1);
    for seed in first..first + number("UNCLOBBER_MODEL_CASES", CASES) {
        let (setting, steps) = generate(seed);
        let Err(error) = run(setting, &steps) else { continue };
        let steps = shorten(setting, steps);
        let again = run(setting, &steps);
        let list: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
        panic!(
            "seed {seed}: {error}\n{setting:#?}\nshortest:\n{}\n{again:?}",
            list.join("\n")
        );
    }
}
