use super::*;
use clap::CommandFactory;
use clap::error::ErrorKind;

fn parse(line: &[&str]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("unclobber").chain(line.iter().copied()))
}

fn run_args(line: &[&str]) -> RunArgs {
    let Command::Run(args) = parse(line).unwrap().command else {
        panic!("not run")
    };
    args
}

#[test]
fn the_table_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn run_takes_the_command_as_it_is() {
    let args = run_args(&[
        "run", "--owner", "A", "-w", "/w", "--", "cmd", "-x", "--mode", "odd", "--",
    ]);
    assert_eq!(args.command, ["cmd", "-x", "--mode", "odd", "--"]);
    assert_eq!(args.owner.as_deref(), Some("A"));
    assert_eq!(args.policy.policy(), Policy::default());
    assert_eq!(
        run_args(&["run", "ls", "-l", "--owner"]).command,
        ["ls", "-l", "--owner"]
    );
}

#[test]
fn run_takes_every_option() {
    let line = "run --mode observe --unseen allow --remove observed --view owner --create direct --durability publish \
                --cache strict --passthrough off \
                --linger 2m --attic-age 2d --attic-size 3M -vv --log-file /l -- c";
    let cli = parse(&line.split_whitespace().collect::<Vec<_>>()).unwrap();
    assert_eq!((cli.log.verbose, cli.log.log_file), (2, Some(PathBuf::from("/l"))));
    let Command::Run(args) = cli.command else {
        panic!("not run")
    };
    let expected = Policy {
        mode: Mode::Observe,
        unseen: Unseen::Allow,
        remove: Remove::Observed,
        view: View::Owner,
        create: Create::Direct,
        durability: Durability::Publish,
        cache: Cache::Strict,
        passthrough: Passthrough::Off,
    };
    assert_eq!(args.policy.policy(), expected);
    assert_eq!(args.policy.linger, Some(Duration::from_secs(120)));
    let bounds = BoundsArgs {
        attic_age: Some(Duration::from_secs(172_800)),
        attic_size: Some(3 << 20),
        ..BoundsArgs::default()
    };
    assert_eq!(args.policy.bounds, bounds);
}

#[test]
fn bad_flags_and_values_are_usage_errors_that_name_the_flag() {
    let cases: [(&[&str], &str); 28] = [
        (&["run", "--bogus", "--", "c"], "--bogus"),
        (&["run", "--mode", "maybe", "--", "c"], "--mode"),
        (&["run", "--unseen", "maybe", "--", "c"], "--unseen"),
        (&["run", "--remove", "maybe", "--", "c"], "--remove"),
        (&["run", "--view", "maybe", "--", "c"], "--view"),
        (&["run", "--create", "maybe", "--", "c"], "--create"),
        (&["run", "--durability", "maybe", "--", "c"], "--durability"),
        (&["run", "--linger", "soon", "--", "c"], "--linger"),
        (&["run", "--linger", "5w", "--", "c"], "--linger"),
        (&["run", "--linger", "99999999999", "--", "c"], "--linger"),
        (&["run", "--owner", "a b", "--", "c"], "--owner"),
        (&["run", "--owner", "", "--", "c"], "--owner"),
        (&["run", "--owner", "session-7", "--", "c"], "--owner"),
        (&["mount", "--owner", "run-7", "d"], "--owner"),
        (&["run"], "CMD"),
        (&["mount"], "DIR"),
        (&["mount", "d", "m", "x"], "x"),
        (&["mount", "--owner-by", "moon", "d"], "--owner-by"),
        (&["mount", "--owner-by", "user", "--owner", "A", "d"], "--owner"),
        (&["umount"], "MOUNTPOINT"),
        (&["status", "--yaml"], "--yaml"),
        (&["explode"], "explode"),
        (&["run", "--attic-size", "much", "--", "c"], "--attic-size"),
        (&["attic"], "requires a subcommand"),
        (&["attic", "prune"], "--older-than"),
        (&["attic", "prune", "--all", "--older-than", "1d"], "--all"),
        (&["attic", "restore"], "ID"),
        (&["report", "--json", "--toml"], "--toml"),
    ];
    for (line, named) in cases {
        let error = parse(line).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line:?}");
        assert!(error.to_string().contains(named), "{line:?}: {error}");
    }
}

#[test]
fn help_and_version_are_no_errors() {
    assert_eq!(parse(&["--help"]).unwrap_err().kind(), ErrorKind::DisplayHelp);
    assert_eq!(parse(&["run", "--help"]).unwrap_err().kind(), ErrorKind::DisplayHelp);
    assert_eq!(parse(&["--version"]).unwrap_err().kind(), ErrorKind::DisplayVersion);
}

#[test]
fn durations() {
    for (text, seconds) in [
        ("0", 0),
        ("90", 90),
        ("90s", 90),
        ("10m", 600),
        ("2h", 7200),
        ("7d", 604_800),
    ] {
        assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)));
    }
    for text in ["", "m", "-1", "1.5", "1 m", "1ms", "é"] {
        assert!(parse_duration(text).is_err(), "{text:?}");
    }
}

#[test]
fn sizes() {
    for (text, bytes) in [
        ("0", 0),
        ("90", 90),
        ("4K", 4096),
        ("2M", 2 << 20),
        ("1G", 1 << 30),
        ("1T", 1 << 40),
    ] {
        assert_eq!(parse_size(text), Ok(bytes));
    }
    for text in ["", "K", "-1", "1.5M", "1 M", "1MB", "é", "99999999999T"] {
        assert!(parse_size(text).is_err(), "{text:?}");
    }
}
