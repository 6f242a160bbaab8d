//! Kinds of values: what is accepted of TOML, what it becomes, and how it is written back.
//!
//! Units: a [`Time`] is a whole number of its unit in the file and a `Duration` in the program; a [`Kib`] is
//! KB (1024 bytes) in the file and bytes in the program.

use std::{marker::PhantomData, path::PathBuf, time::Duration};

use toml::Value;

/// A kind of value.
pub(super) trait Kind {
    /// What it becomes.
    type Value;
    /// The value, if it is acceptable.
    fn read(&self, raw: &Value) -> Option<Self::Value>;
    /// As [`Kind::read`] takes it.
    fn show(&self, value: &Self::Value) -> Value;
    /// What is accepted, in words that follow "must be".
    fn accepted(&self) -> String;
}

/// `true` or `false`.
pub(super) struct Bool;

impl Kind for Bool {
    type Value = bool;

    fn read(&self, raw: &Value) -> Option<bool> {
        raw.as_bool()
    }

    fn show(&self, value: &bool) -> Value {
        Value::Boolean(*value)
    }

    fn accepted(&self) -> String {
        "true or false".into()
    }
}

/// A finite number within bounds; integers are welcome.
pub(super) struct Number {
    least: f64,
    most: f64,
}

/// A coefficient. The upper bound keeps sums and products of them finite.
pub(super) const COEFFICIENT: Number = Number { least: 0.0, most: 1e15 };
/// A share of one.
pub(super) const FRACTION: Number = Number { least: 0.0, most: 1.0 };
/// A share of a hundred.
pub(super) const PERCENT: Number = Number { least: 0.0, most: 100.0 };

impl Kind for Number {
    type Value = f64;

    fn read(&self, raw: &Value) -> Option<f64> {
        let number = raw.as_float().or_else(|| raw.as_integer().map(|whole| whole as f64))?;
        // Adding zero turns -0.0 into 0.0. NaN is in no range.
        (self.least..=self.most).contains(&number).then_some(number + 0.0)
    }

    fn show(&self, value: &f64) -> Value {
        Value::Float(*value)
    }

    fn accepted(&self) -> String {
        match self.most {
            most if most > PERCENT.most => format!("a number from {} to {most:e}", self.least),
            most => format!("a number from {} to {most}", self.least),
        }
    }
}

/// An integer within bounds.
pub(super) struct Whole<T> {
    least: i64,
    most: i64,
    kind: PhantomData<T>,
}

/// An integer from `least` to `most`, both included.
pub(super) const fn whole<T>(least: i64, most: i64) -> Whole<T> {
    Whole { least, most, kind: PhantomData }
}

/// A count: an integer from `least`.
pub(super) const fn count<T>(least: i64) -> Whole<T> {
    whole(least, u32::MAX as i64)
}

/// A TCP port that something listens on.
pub(super) const fn port() -> Whole<u16> {
    whole(1, u16::MAX as i64)
}

impl<T: Copy + TryFrom<i64> + TryInto<i64>> Kind for Whole<T> {
    type Value = T;

    fn read(&self, raw: &Value) -> Option<T> {
        raw.as_integer().filter(|n| (self.least..=self.most).contains(n)).and_then(|n| T::try_from(n).ok())
    }

    fn show(&self, value: &T) -> Value {
        Value::Integer((*value).try_into().unwrap_or(self.most))
    }

    fn accepted(&self) -> String {
        format!("an integer from {} to {}", self.least, self.most)
    }
}

/// A length of time: a whole number of milliseconds or seconds.
pub(super) struct Time {
    millis_per_unit: u64,
    count: Whole<u64>,
}

/// Milliseconds, not 0.
pub(super) const MILLIS: Time = Time { millis_per_unit: 1, count: count(1) };
/// Seconds, not 0.
pub(super) const SECS: Time = Time { millis_per_unit: 1000, count: count(1) };
/// Seconds, not 0, of at most an hour.
pub(super) const SECS_OF_AN_HOUR: Time = Time { millis_per_unit: 1000, count: whole(1, 3600) };
/// Seconds, where 0 has a meaning.
pub(super) const SECS_OR_ZERO: Time = Time { millis_per_unit: 1000, count: count(0) };

impl Kind for Time {
    type Value = Duration;

    fn read(&self, raw: &Value) -> Option<Duration> {
        self.count.read(raw).map(|units| Duration::from_millis(units * self.millis_per_unit))
    }

    fn show(&self, value: &Duration) -> Value {
        self.count.show(&(value.as_millis() as u64 / self.millis_per_unit))
    }

    fn accepted(&self) -> String {
        self.count.accepted()
    }
}

/// A size in KB of 1024 bytes, not 0.
pub(super) struct Kib;

impl Kind for Kib {
    type Value = usize;

    fn read(&self, raw: &Value) -> Option<usize> {
        count::<usize>(1).read(raw)?.checked_mul(1024)
    }

    fn show(&self, value: &usize) -> Value {
        count(1).show(&(value / 1024))
    }

    fn accepted(&self) -> String {
        count::<usize>(1).accepted()
    }
}

/// One of some words. Of several words with one meaning the first is written back.
pub(super) struct Choice<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Kind for Choice<T> {
    type Value = T;

    fn read(&self, raw: &Value) -> Option<T> {
        let word = raw.as_str()?;
        self.0.iter().find(|(name, _)| *name == word).map(|(_, meaning)| *meaning)
    }

    fn show(&self, value: &T) -> Value {
        let word = self.0.iter().find(|(_, meaning)| meaning == value).map_or("", |(name, _)| name);
        Value::String(word.into())
    }

    fn accepted(&self) -> String {
        let words: Vec<_> = self.0.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        format!("one of {}", words.join(", "))
    }
}

/// A string that passes a test, in the form that the test hands back.
pub(super) struct Checked<T> {
    accepted: &'static str,
    test: fn(&str) -> Option<String>,
    kind: PhantomData<T>,
}

/// A string that `test` takes.
pub(super) const fn checked<T>(accepted: &'static str, test: fn(&str) -> Option<String>) -> Checked<T> {
    Checked { accepted, test, kind: PhantomData }
}

impl<T> Checked<T> {
    /// The same test, described otherwise.
    pub(super) const fn described(self, accepted: &'static str) -> Self {
        checked(accepted, self.test)
    }
}

/// Any string but an empty or blank one.
pub(super) const fn text<T>() -> Checked<T> {
    checked("a non-empty string", |text| (!text.trim().is_empty()).then(|| text.to_owned()))
}

/// Any string.
pub(super) const fn any_text<T>() -> Checked<T> {
    checked("a string", |text| Some(text.to_owned()))
}

impl<T: From<String> + AsRef<str>> Kind for Checked<T> {
    type Value = T;

    fn read(&self, raw: &Value) -> Option<T> {
        raw.as_str().and_then(self.test).map(T::from)
    }

    fn show(&self, value: &T) -> Value {
        Value::String(value.as_ref().to_owned())
    }

    fn accepted(&self) -> String {
        self.accepted.into()
    }
}

/// A path. Relative ones are resolved once the whole file is read.
pub(super) struct FilePath;

impl Kind for FilePath {
    type Value = PathBuf;

    fn read(&self, raw: &Value) -> Option<PathBuf> {
        raw.as_str().filter(|path| !path.is_empty() && !path.contains('\0')).map(PathBuf::from)
    }

    fn show(&self, value: &PathBuf) -> Value {
        Value::String(value.to_string_lossy().into_owned())
    }

    fn accepted(&self) -> String {
        "a path".into()
    }
}
