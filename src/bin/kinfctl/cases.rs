//! `kinfctl test`: runs the cases of test files, and says of each that fails what was wanted and what came.

use serde_json::{Value, json};

use crate::{
    explain,
    findings::{Finding, Severity},
    inputs,
    output::{self, Format, Outcome, Tone},
    scenario::{Case, Decision, Names, TestFile, Then, Verdict, World, decide, problems, read_tests},
    validate::counted,
};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Files of cases, directories (all `.test.yaml` under them), patterns such as `'policies/*.test.yaml'`, or `-` for
    /// standard input.
    #[arg(required = true)]
    files: Vec<String>,
    /// Only cases with this in their words. Default: all.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    case: String,
    /// How results are printed: as text (`table`), as one JSON object a case, or as YAML documents.
    #[arg(
        long,
        short,
        value_name = "FORMAT",
        value_enum,
        default_value = "table",
        hide_possible_values = true
    )]
    output: Format,
}

/// A case that was run.
pub struct Ran<'a> {
    /// Its file, with the line that it begins in.
    pub place: String,
    /// The case.
    pub case: &'a Case,
    /// What it ran in.
    pub world: &'a World,
    /// What came.
    pub decision: Decision,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let (mut passed, mut failed) = (0, 0);
    let found = each_case(&args.files, &args.case, &mut |ran| {
        let wrong = compare(&ran.case.then, ran);
        *(if wrong.is_empty() { &mut passed } else { &mut failed }) += 1;
        match args.output {
            Format::Table => report(ran, &wrong),
            format => output::object(format, &object(ran, &wrong)),
        }
    })?;
    for finding in &found {
        match args.output {
            Format::Table => output::text(&finding.line(output::colours()))?,
            format => output::object(format, &finding.object())?,
        }
    }
    if args.output == Format::Table {
        output::text(&format!("{} passed, {failed} failed", counted(passed, "case")))?;
    }
    let fine = found.is_empty() && failed == 0 && passed > 0;
    Ok(if fine { Outcome::Fine } else { Outcome::Problems })
}

/// Runs the cases with `wanted` in their words; hands back what kept some from being run.
pub fn each_case(
    files: &[String],
    wanted: &str,
    then: &mut dyn FnMut(&Ran<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Finding>> {
    let (sources, mut found) = inputs::read(files, inputs::is_test);
    for source in &sources {
        let tests = match read_tests(&source.name, &source.text) {
            Ok(tests) => tests,
            Err(finding) => {
                found.push(*finding);
                continue;
            }
        };
        for test in &tests {
            match World::of(&source.name, &test.setting()) {
                Ok(world) => found.extend(run_cases((&source.name, test, wanted), &world, then)?),
                Err(errors) => found.extend(errors.into_iter().filter(|one| one.severity == Severity::Error)),
            }
        }
    }
    Ok(found)
}

/// Hands back what keeps some of them from being run.
fn run_cases(
    (file, test, wanted): (&str, &TestFile, &str),
    world: &World,
    then: &mut dyn FnMut(&Ran<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Finding>> {
    let mut found = Vec::new();
    for spanned in test.cases.iter().filter(|spanned| spanned.value.it.contains(wanted)) {
        let (case, at) = (&spanned.value, spanned.referenced);
        let fleet = test.fleet_of(case);
        let problems = problems(world, &fleet, case);
        if problems.is_empty() {
            let decision = decide(world, &fleet, &case.when);
            then(&Ran { place: format!("{file}:{}", at.line()), case, world, decision })?;
        }
        found.extend(problems.into_iter().map(|(path, message)| Finding {
            severity: Severity::Error,
            file: Some(file.to_owned()),
            place: Some((at.line().try_into().unwrap_or(1), at.column().try_into().unwrap_or(1))),
            path,
            message,
        }));
    }
    Ok(found)
}

/// What was wanted and what came instead, each as a test file says it.
struct Difference {
    wanted: (&'static str, String),
    came: (&'static str, String),
}

fn compare(then: &Then, ran: &Ran<'_>) -> Vec<Difference> {
    let decision = &ran.decision;
    let mut out = Vec::new();
    let mut differs = |wanted: (&'static str, String), came| out.push(Difference { wanted, came });
    match &decision.verdict {
        Verdict::Goes { picks, order } => {
            let (picks, order) = (decision.names(picks), decision.names(order));
            if let Some(wanted) = then.picks.as_ref().map(Names::all)
                && !picks.iter().all(|name| wanted.contains(name))
            {
                let wanted: Vec<_> = wanted.into_iter().collect();
                differs(("picks", wanted.join(", ")), ("picks", picks.join(", ")));
            }
            if let Some(wanted) = then.order.as_ref().filter(|wanted| **wanted != order) {
                differs(("order", wanted.join(", ")), ("order", order.join(", ")));
            }
            if let Some(wanted) = &then.rejects {
                differs(("rejects", wanted.to_string()), ("picks", picks.join(", ")));
            }
        }
        Verdict::Rejected { status, message } => {
            let came = || ("rejects", format!("{status}, {message}"));
            if let Some(wanted) = &then.picks {
                differs(("picks", wanted.all().into_iter().collect::<Vec<_>>().join(", ")), came());
            }
            if let Some(wanted) = &then.order {
                differs(("order", wanted.join(", ")), came());
            }
            if let Some(wanted) = then.rejects.as_ref().filter(|wanted| !wanted.fits(*status, message)) {
                differs(("rejects", wanted.to_string()), came());
            }
        }
    }
    let rule = decision.decided_by().map_or("none", |index| &*ran.world.pool.rules[index].name);
    if let Some(wanted) = then.rule.as_deref().filter(|wanted| *wanted != rule) {
        differs(("rule", wanted.to_owned()), ("rule", rule.to_owned()));
    }
    out
}

fn report(ran: &Ran<'_>, wrong: &[Difference]) -> anyhow::Result<()> {
    let colours = output::colours();
    let paint = |tone: Tone, text: &str| if colours { tone.paint(text) } else { text.to_owned() };
    let it = &ran.case.it;
    if wrong.is_empty() {
        return output::text(&format!("{} {it}", paint(Tone::Good, "ok  ")));
    }
    output::text(&format!("{} {it} ({})", paint(Tone::Bad, "FAIL"), ran.place))?;
    for Difference { wanted, came } in wrong {
        output::text(&paint(Tone::Good, &format!("     - {}: {}", wanted.0, wanted.1)))?;
        output::text(&paint(Tone::Bad, &format!("     + {}: {}", came.0, came.1)))?;
    }
    explain::lines(ran, colours).iter().try_for_each(|line| output::text(format!("     {line}").trim_end()))
}

fn object(ran: &Ran<'_>, wrong: &[Difference]) -> Value {
    let said = |(what, is): &(&str, String)| json!({ *what: is });
    let differences = wrong.iter().map(|one| json!({ "wanted": said(&one.wanted), "came": said(&one.came) }));
    json!({
        "case": ran.case.it,
        "place": ran.place,
        "passed": wrong.is_empty(),
        "differences": differences.collect::<Vec<_>>(),
    })
}
