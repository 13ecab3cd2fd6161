// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as JSON.

use serde::{Serialize, Serializer};
use serde_json::Value;

/// A JSON object whose members stay in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object(Vec<(&'static str, Json)>);

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
enum Json {
    Value(Value),
    Object(Option<Object>),
    List(Vec<Object>),
}

impl Object {
    /// The start of a benchmark's result.
    pub(crate) fn of_bench(bench: &'static str, facts: &Self) -> Self {
        Self::default().with("schema", 1).with("bench", bench).and(facts.clone())
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.0.push((name, Json::Value(value.into())));
        self
    }

    pub(crate) fn object(mut self, name: &'static str, object: Option<Self>) -> Self {
        self.0.push((name, Json::Object(object)));
        self
    }

    pub(crate) fn list(mut self, name: &'static str, list: impl IntoIterator<Item = Self>) -> Self {
        self.0.push((name, Json::List(list.into_iter().collect())));
        self
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}
