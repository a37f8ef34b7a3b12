//! The subset of JSON that a report needs.

use std::fmt::{self, Write};

/// A JSON value.
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    /// An object, in the order of its fields.
    Object(Vec<(&'static str, Json)>),
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Json::Bool(value)
    }
}

impl From<f64> for Json {
    fn from(value: f64) -> Self {
        Json::Number(value)
    }
}

impl From<usize> for Json {
    fn from(value: usize) -> Self {
        Json::Number(value as f64)
    }
}

impl From<&str> for Json {
    fn from(value: &str) -> Self {
        Json::Text(value.to_owned())
    }
}

impl From<String> for Json {
    fn from(value: String) -> Self {
        Json::Text(value)
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Json::Null, Into::into)
    }
}

impl<T: Into<Json>> FromIterator<T> for Json {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Json::List(values.into_iter().map(Into::into).collect())
    }
}

impl Json {
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(value) => write!(f, "{value}"),
            Json::Number(value) if value.is_finite() => write!(f, "{value}"),
            Json::Number(_) => f.write_str("null"),
            Json::Text(text) => write_text(f, text),
            Json::List(values) => {
                let flat = values.iter().all(|value| matches!(value, Json::Number(_) | Json::Null));
                write_items(f, ('[', ']'), depth, flat, values, |f, value| value.write(f, depth + 1))
            }
            Json::Object(fields) => write_items(f, ('{', '}'), depth, false, fields, |f, (name, value)| {
                write_text(f, name)?;
                f.write_str(": ")?;
                value.write(f, depth + 1)
            }),
        }
    }
}

fn write_items<T>(
    f: &mut fmt::Formatter<'_>,
    (open, close): (char, char),
    depth: usize,
    flat: bool,
    items: &[T],
    write_item: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    f.write_char(open)?;
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_char(',')?;
        }
        match (flat, index) {
            (true, 0) => {}
            (true, _) => f.write_char(' ')?,
            (false, _) => write!(f, "\n{:1$}", "", (depth + 1) * 2)?,
        }
        write_item(f, item)?;
    }
    if !flat && !items.is_empty() {
        write!(f, "\n{:1$}", "", depth * 2)?;
    }
    f.write_char(close)
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' | '\\' => write!(f, "\\{character}")?,
            control if control.is_control() => write!(f, "\\u{:04x}", u32::from(control))?,
            other => f.write_char(other)?,
        }
    }
    f.write_char('"')
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_json() {
        let value = Json::Object(vec![
            ("text", "a \"b\" \\ \n".into()),
            ("numbers", [1.5, f64::NAN].into_iter().collect()),
            ("none", None::<f64>.into()),
            ("empty", Json::List(Vec::new())),
            ("list", ["x"].into_iter().collect()),
            ("yes", true.into()),
        ]);
        let expected = "{\n  \"text\": \"a \\\"b\\\" \\\\ \\u000a\",\n  \"numbers\": [1.5, null],\n  \"none\": null,\n  \
                        \"empty\": [],\n  \"list\": [\n    \"x\"\n  ],\n  \"yes\": true\n}";
        assert_eq!(value.to_string(), expected);
    }
}
