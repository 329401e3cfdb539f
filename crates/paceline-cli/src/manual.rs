//! The manual page: what `--help` says of every command, in one.

use crate::{Failure, exit};
use clap::Command;
use clap_mangen::Man;
use std::io::{self, Write as _};

/// Prints it in the format of `man`.
pub(crate) fn print(command: &Command) -> Result<u8, Failure> {
    let mut command = command.clone();
    command.build();
    let mut page = Vec::new();
    let man = Man::new(command.clone());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    for each in command.get_subcommands().filter(|it| it.get_name() != "help") {
        let name = each.get_name().to_uppercase();
        writeln!(page, ".SH \"PACELINE {name}\"")?;
        let man = Man::new(each.clone());
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        man.render_extra_section(&mut page)?;
    }
    let page = sections_within(&String::from_utf8_lossy(&page));
    io::stdout().write_all(page.as_bytes())?;
    Ok(exit::OK)
}

/// Within a command's own section, what would be sections are parts of it.
fn sections_within(page: &str) -> String {
    let mut of_command = false;
    let mut lines = String::with_capacity(page.len());
    for line in page.lines() {
        of_command |= line.starts_with(".SH \"PACELINE ");
        match line.strip_prefix(".SH ") {
            Some(title) if of_command && !title.starts_with("\"PACELINE ") => {
                lines.push_str(".SS ");
                lines.push_str(title);
            }
            _ => lines.push_str(line),
        }
        lines.push('\n');
    }
    lines
}
