//! `kinfctl explain`: why a request goes where it goes: the cases of files, a request over the workers of a running server,
//! or one that such a server has decided over.
//!
//! For a new request a running server is asked for its workers only: a pick would reserve load, and there is none that does not.

mod candidates;
mod live;
mod past;
mod show;
mod story;

pub use show::lines;

use crate::{
    cases::{Ran, each_case},
    client::Server,
    output::{self, Format, Outcome},
};
use show::object;

/// What it takes, also where nothing is given.
const USAGE: &str = "kinfctl explain [OPTIONS] <FILES>...
       kinfctl explain [OPTIONS] --request-id <ID> [--admin <URL>]
       kinfctl explain [OPTIONS] --model <MODEL> --pool <POOL> --policies <FILE> [--server <ADDRESS>]";

/// Arguments.
#[derive(clap::Args)]
#[command(override_usage = USAGE)]
pub struct Args {
    /// Files of cases, as `kinfctl test` takes them: their policies, fleet and request are explained.
    #[arg(required_unless_present_any = ["model", "request_id"], conflicts_with_all = ["model", "request_id"])]
    files: Vec<String>,
    /// Only cases with this in their words. Default: all.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        conflicts_with_all = ["model", "request_id"]
    )]
    case: String,
    /// How explanations are printed: as text (`table`), as one JSON object a case or decision, or as YAML documents.
    #[arg(
        long,
        short,
        value_name = "FORMAT",
        value_enum,
        default_value = "table",
        hide_possible_values = true
    )]
    output: Format,
    #[command(flatten, next_help_heading = "A request that a running server has decided over")]
    past: past::Past,
    #[command(flatten, next_help_heading = "A request over the workers of a running server")]
    request: live::Request,
    #[command(flatten, next_help_heading = "The running server")]
    server: Server,
}

/// Runs the command.
pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    if let Some(id) = &args.past.request_id {
        past::explain(id, &args.past, args.output).await?;
        return Ok(Outcome::Fine);
    }
    let mut explained = 0;
    let mut print = |ran: &Ran<'_>| {
        explained += 1;
        if args.output != Format::Table {
            return output::object(args.output, &object(ran));
        }
        output::text(&format!("{} ({})", ran.case.it, ran.place))?;
        lines(ran, output::colours()).iter().try_for_each(|line| output::text(line))?;
        output::text("")
    };
    let found = match args.request.is_given() {
        true => live::explain(&args.request, &args.server, &mut print).await?,
        false => each_case(&args.files, &args.case, &mut print)?,
    };
    found.iter().try_for_each(|finding| output::text(&finding.line(output::colours())))?;
    anyhow::ensure!(explained > 0 || !found.is_empty(), "no case has {:?} in its words", args.case);
    Ok(if found.is_empty() { Outcome::Fine } else { Outcome::Problems })
}
