//! Counts the requests to an API server, by the server's own metrics.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use gantry_testkit::http::{Client, Request};

/// Requests by verb and resource, such as `PATCH appwrappers/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests(BTreeMap<String, u64>);

impl Requests {
    /// Returns all requests so far. A server without the metric has none.
    pub(crate) async fn read(client: &Client) -> anyhow::Result<Self> {
        let answer =
            client.send(Request::get("/metrics")).await.context("could not read metrics")?;
        ensure!(answer.status.is_success(), "metrics: {}", answer.status);
        Ok(Self::parse(&answer.text()))
    }

    fn parse(text: &str) -> Self {
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            let Some(line) = line.strip_prefix("apiserver_request_total{") else { continue };
            let Some((labels, value)) = line.rsplit_once("} ") else { continue };
            let label = |name: &str| {
                let found = labels.split("\",").find_map(|it| it.strip_prefix(name));
                found
                    .and_then(|it| it.strip_prefix("=\""))
                    .map_or("", |it| it.trim_end_matches('"'))
            };
            // Counts are written as floating-point numbers; large ones have an exponent.
            let Ok(value) = value.parse::<f64>() else { continue };
            let (resource, subresource) = (label("resource"), label("subresource"));
            let slash = if subresource.is_empty() { "" } else { "/" };
            let key = format!("{} {resource}{slash}{subresource}", label("verb"));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a counter is whole and not negative"
            )]
            let value = value as u64;
            *counts.entry(key).or_default() += value;
        }
        Self(counts)
    }

    /// Returns the requests since an earlier reading.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let fresh = self.0.iter().map(|(key, count)| {
            let before = earlier.0.get(key).copied().unwrap_or_default();
            (key.clone(), count.saturating_sub(before))
        });
        Self(fresh.filter(|(_, count)| *count > 0).collect())
    }

    /// Counts all writes except those to the leases that servers and controllers renew.
    pub(crate) fn writes(&self) -> u64 {
        self.count(|verb| matches!(verb, "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE"))
    }

    /// Counts writes of Events.
    pub(crate) fn events(&self) -> u64 {
        let events =
            self.0.iter().filter(|(key, _)| *key == "POST events" || *key == "PATCH events");
        events.map(|(_, count)| count).sum()
    }

    /// Counts lists.
    pub(crate) fn lists(&self) -> u64 {
        self.count(|verb| verb == "LIST")
    }

    fn count(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        let split = self.0.iter().filter_map(|(key, count)| Some((key.split_once(' ')?, count)));
        let counted = split.filter(|((verb, what), _)| wanted(verb) && *what != "leases");
        counted.map(|(_, count)| count).sum()
    }

    /// Returns the most frequent ones, one line each.
    pub(crate) fn show(&self) -> Vec<String> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        all.into_iter().take(12).map(|(key, count)| format!("{count:>9} {key}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_verb_and_resource() {
        let line = |code: u32, verb: &str, resource: &str, subresource: &str, count: &str| {
            format!(
                "apiserver_request_total{{code=\"{code}\",component=\"apiserver\",dry_run=\"\",\
                 group=\"g\",resource=\"{resource}\",scope=\"resource\",\
                 subresource=\"{subresource}\",verb=\"{verb}\",version=\"v1\"}} {count}\n"
            )
        };
        let before = Requests::parse(&line(200, "LIST", "nodes", "", "2"));
        let text = [
            "# TYPE apiserver_request_total counter\n".to_owned(),
            line(200, "LIST", "nodes", "", "2"),
            line(200, "PATCH", "appwrappers", "status", "1.5e+06"),
            line(409, "PATCH", "appwrappers", "status", "3"),
            line(200, "PUT", "leases", "", "7"),
            line(201, "POST", "appwrappers", "", "10"),
            line(201, "POST", "events", "", "4"),
            line(200, "PATCH", "events", "", "2"),
        ];
        let found = Requests::parse(&text.concat()).since(&before);
        assert_eq!(found.0["PATCH appwrappers/status"], 1_500_003);
        assert_eq!((found.writes(), found.events(), found.lists()), (1_500_019, 6, 0));
        assert!(found.show()[0].ends_with("1500003 PATCH appwrappers/status"));
    }
}
