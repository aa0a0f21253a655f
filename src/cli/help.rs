//! `unclobber help`, the manual page and the completions, all from the table of commands.
//!
//! It never describes anything itself.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::CommandFactory;

use super::args::{Cli, CompletionsArgs, HelpArgs};
use super::output::{Problem, USAGE, print};
use super::topics::TOPICS;

/// Shows help on a command or a topic.
pub(crate) fn help(args: &HelpArgs) -> Result<ExitCode, Problem> {
    let mut table = Cli::command();
    let Some(topic) = &args.topic else {
        return show(&table.render_long_help().to_string());
    };
    if let Some((_, text)) = TOPICS.iter().find(|(name, _)| name == topic) {
        return show(text);
    }
    table.build();
    match table.find_subcommand_mut(topic) {
        Some(command) => show(&command.render_long_help().to_string()),
        None => {
            let topics: Vec<&str> = TOPICS.iter().map(|(name, _)| *name).collect();
            let known = format!(
                "the topics are {}; `unclobber help` lists the commands",
                topics.join(", ")
            );
            Err(
                Problem::new("no help", format!("there is no command or topic {topic:?}"))
                    .hint(known)
                    .code(USAGE),
            )
        }
    }
}

/// Prints the manual page: the program's, then each command's, then the topics.
pub(crate) fn man() -> Result<ExitCode, Problem> {
    let mut table = Cli::command();
    table.build();
    let mut page = Vec::new();
    write_man(&table, &mut page).map_err(|error| Problem::new("cannot write the manual page", error))?;
    show(&String::from_utf8_lossy(&page))
}

fn write_man(table: &clap::Command, page: &mut Vec<u8>) -> io::Result<()> {
    let program = clap_mangen::Man::new(table.clone());
    program.render_title(page)?;
    program.render_name_section(page)?;
    program.render_synopsis_section(page)?;
    program.render_description_section(page)?;
    program.render_options_section(page)?;
    write_plain(table, page)?;
    for command in table.get_subcommands().filter(|command| !command.is_hide_set()) {
        writeln!(page, ".SH \"COMMAND {}\"", command.get_name().to_uppercase())?;
        let section = clap_mangen::Man::new(command.clone());
        section.render_description_section(page)?;
        section.render_synopsis_section(page)?;
        section.render_options_section(page)?;
        for part in command.get_subcommands() {
            writeln!(page, ".SS \"{} {}\"", command.get_name(), part.get_name())?;
            let section = clap_mangen::Man::new(part.clone());
            section.render_description_section(page)?;
            section.render_options_section(page)?;
        }
        write_plain(command, page)?;
    }
    for (name, text) in TOPICS {
        writeln!(page, ".SH {}\n.nf\n{}.fi", name.to_uppercase(), escape(text))?;
    }
    Ok(())
}

/// The examples, in lines as they are.
fn write_plain(command: &clap::Command, page: &mut Vec<u8>) -> io::Result<()> {
    let Some(text) = command.get_after_help() else {
        return Ok(());
    };
    writeln!(page, ".PP\n.nf\n{}\n.fi", escape(&text.to_string()))
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace("\n.", "\n\\&.")
}

/// Prints completions for a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitCode, Problem> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "unclobber", &mut script);
    show(&String::from_utf8_lossy(&script))
}

fn show(text: &str) -> Result<ExitCode, Problem> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    print(&format!("{text}{end}"))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_and_commands_are_found_and_others_named() {
        let ask = |topic: &str| {
            help(&HelpArgs {
                topic: Some(topic.to_owned()),
            })
        };
        assert!(ask("exit-codes").is_ok());
        assert!(ask("run").is_ok());
        assert_eq!(ask("cheese").unwrap_err().code, USAGE);
    }
}
