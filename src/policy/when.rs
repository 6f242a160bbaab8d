//! `when` of a rule: a CEL expression over `request` and `pool`, compiled once and evaluated once a request.
//!
//! Invariant: an expression that compiled names only variables and fields that exist, and gives true or false for a
//! request of which everything is known. One that can't be evaluated (it needs what is not known) does not hold.

use std::collections::HashMap;

use cel::{
    Context, Program, Value,
    common::ast::{EntryExpr, Expr, IdedExpr},
};

use super::{
    eval::{PoolState, Request, Spread},
    expression,
};

const REQUEST: &[&str] = &["model", "tenant", "tags", "prompt_tokens", "output_tokens"];
const POOL: &[&str] = &["ready_workers", "queue_length", "running_requests", "kv_cache_use_percent"];
const SPREAD: &[&str] = &["min", "mean", "max"];

/// A compiled expression.
#[derive(Debug)]
pub struct When {
    program: Program,
}

impl When {
    /// Compiles it.
    ///
    /// # Errors
    /// What is wrong with it, to go on after "`when`".
    pub fn compile(text: &str) -> Result<Self, String> {
        let program = Program::compile(text).map_err(|errors| {
            let first = errors.errors.first();
            let (column, why) = first.map(|error| (error.pos.1, error.msg.as_str())).unwrap_or_default();
            format!("is no CEL expression: column {column}: {why}")
        })?;
        names(program.expression(), &mut Vec::new())?;
        let when = Self { program };
        match when.evaluate(context(&example())) {
            Ok(Value::Bool(_)) => Ok(when),
            Ok(other) => Err(format!("gives a {}, but must give true or false", other.type_of())),
            Err(error) => Err(format!("can't be evaluated: {error}")),
        }
    }

    /// Whether it holds. `Err` says why that can't be told.
    ///
    /// # Errors
    /// It needs what is not known of this request.
    pub fn holds(&self, request: &Request<'_>, pool: &PoolState) -> Result<bool, String> {
        match self.evaluate(context(&(*request, *pool))) {
            Ok(value) => Ok(value == Value::Bool(true)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn evaluate(&self, context: Context<'_, '_>) -> Result<Value, cel::ExecutionError> {
        self.program.execute(&context)
    }
}

/// One of which everything is known, to try expressions with.
fn example() -> (Request<'static>, PoolState) {
    static TAGS: [String; 1] = [String::new()];
    let request =
        Request { model: "", tenant: Some(""), tags: &TAGS, prompt_tokens: Some(1), output_tokens: Some(1) };
    let spread = Some(Spread::default());
    (request, PoolState { ready_workers: 1, queue: spread, running: spread, kv_use_percent: spread })
}

fn context((request, pool): &(Request<'_>, PoolState)) -> Context<'static, 'static> {
    let count = |count: Option<u64>| count.map(|count| Value::Int(i64::try_from(count).unwrap_or(i64::MAX)));
    let of_request = [
        Some(Value::from(request.model)),
        Some(request.tenant.unwrap_or_default().into()),
        Some(request.tags.iter().map(|tag| Value::from(tag.as_str())).collect::<Vec<_>>().into()),
        count(request.prompt_tokens),
        count(request.output_tokens),
    ];
    let of_pool = [
        count(Some(pool.ready_workers.into())),
        pool.queue.map(spread),
        pool.running.map(spread),
        pool.kv_use_percent.map(spread),
    ];
    let mut context = expression::context();
    context.add_variable_from_value("request", known(REQUEST, of_request));
    context.add_variable_from_value("pool", known(POOL, of_pool));
    context
}

fn spread(of: Spread) -> Value {
    known(SPREAD, [of.min, of.mean, of.max].map(|value| Some(Value::Float(value))))
}

/// What is known, by its name; what is not is no field.
fn known<const N: usize>(names: &[&'static str], values: [Option<Value>; N]) -> Value {
    let fields = names.iter().zip(values).filter_map(|(name, value)| Some((*name, value?)));
    fields.collect::<HashMap<_, _>>().into()
}

/// Says which variable or field does not exist. `bound` are the variables of the macros around.
fn names<'a>(at: &'a IdedExpr, bound: &mut Vec<&'a str>) -> Result<(), String> {
    match &at.expr {
        Expr::Ident(name) if bound.contains(&name.as_str()) || name.starts_with('@') => Ok(()),
        Expr::Ident(name) => one_of(name, "", &["request", "pool"]),
        Expr::Select(select) => {
            match &select.operand.expr {
                Expr::Ident(of) if of == "request" => one_of(&select.field, "request.", REQUEST)?,
                Expr::Ident(of) if of == "pool" => one_of(&select.field, "pool.", POOL)?,
                Expr::Select(inner) if matches!(&inner.operand.expr, Expr::Ident(of) if of == "pool") => {
                    one_of(&select.field, &format!("pool.{}.", inner.field), SPREAD)?;
                }
                _ => {}
            }
            names(&select.operand, bound)
        }
        Expr::Call(call) => {
            call.target.as_deref().into_iter().chain(&call.args).try_for_each(|e| names(e, bound))
        }
        Expr::List(list) => list.elements.iter().try_for_each(|element| names(element, bound)),
        Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => names(&entry.key, bound).and_then(|()| names(&entry.value, bound)),
            EntryExpr::StructField(field) => names(&field.value, bound),
        }),
        Expr::Comprehension(all) => {
            names(&all.iter_range, bound)?;
            let before = bound.len();
            bound.extend([all.iter_var.as_str(), all.accu_var.as_str()]);
            bound.extend(all.iter_var2.as_deref());
            let inside = [&all.accu_init, &all.loop_cond, &all.loop_step, &all.result];
            let found = inside.into_iter().try_for_each(|inside| names(inside, bound));
            bound.truncate(before);
            found
        }
        Expr::Unspecified | Expr::Literal(_) | Expr::Struct(_) => Ok(()),
    }
}

fn one_of(name: &str, before: &str, known: &[&str]) -> Result<(), String> {
    if known.contains(&name) {
        return Ok(());
    }
    let known: Vec<_> = known.iter().map(|known| format!("`{before}{known}`")).collect();
    Err(format!("names `{before}{name}`, which does not exist; accepted: {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        When::compile(text).unwrap_err()
    }

    #[test]
    fn what_is_wrong_is_said_when_it_is_compiled() {
        assert!(wrong("1 +").starts_with("is no CEL expression: column "), "{}", wrong("1 +"));
        assert_eq!(
            wrong("request.tennant == 'a'"),
            "names `request.tennant`, which does not exist; accepted: `request.model`, `request.tenant`, \
             `request.tags`, `request.prompt_tokens`, `request.output_tokens`"
        );
        // Also where it would not be evaluated.
        assert!(wrong("true || pool.queue_length.median > 3").contains("`pool.queue_length.median`"));
        assert!(wrong("request.tags.exists(t, tag == 'x')").contains("names `tag`"));
        assert!(wrong("request.prompt_tokens").contains("must give true or false"));
        assert!(wrong("request.prompt_tokens > 'many'").starts_with("can't be evaluated: "));
    }

    #[test]
    fn it_holds_or_not_and_what_is_not_known_is_an_error() {
        let tags = ["batch".to_owned()];
        let request =
            Request { model: "m", tenant: None, tags: &tags, prompt_tokens: None, output_tokens: None };
        let running = Some(Spread { min: 0.0, mean: 2.5, max: 5.0 });
        let pool = PoolState { ready_workers: 2, running, ..PoolState::default() };
        let holds = |text: &str| When::compile(text).unwrap().holds(&request, &pool);
        assert_eq!(holds("'batch' in request.tags && pool.ready_workers >= 2"), Ok(true));
        assert_eq!(holds("request.tags.exists(t, t.startsWith('b')) && request.tenant == ''"), Ok(true));
        assert_eq!(holds("request.model == 'other'"), Ok(false));
        assert_eq!(holds("pool.running_requests.max > 4 && pool.running_requests.mean < 2.6"), Ok(true));
        assert_eq!(holds("has(request.prompt_tokens) && request.prompt_tokens > 5"), Ok(false));
        assert!(holds("request.prompt_tokens > 5").is_err());
        assert!(holds("pool.queue_length.mean > 5.0").is_err());
    }
}
