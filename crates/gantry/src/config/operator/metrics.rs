//! Rules between the keys of the metrics server.

use gantry_process::health::BindAddress;

use super::{ConfigMessage, ConfigReport, Values, refuse};

const ADDRESS: &str = "metrics.bindAddress";
const SECURE: &str = "metrics.secureServing";
const CERTIFICATE: &str = "metrics.certFile";
const KEY: &str = "metrics.keyFile";
const PROBES: &str = "health.bindAddress";

pub(super) fn check(values: &Values, report: &mut ConfigReport) {
    check_files(values, report);
    if report.has_error_for(&[ADDRESS, SECURE, PROBES]) {
        return;
    }
    let text = |key| values.get(key).as_str().unwrap_or_default();
    let address = |key| text(key).parse().unwrap_or(BindAddress::Disabled);
    let (metrics, probes) = (address(ADDRESS), address(PROBES));
    let secure = values.get(SECURE) == true;
    if !secure && !metrics.is_loopback() {
        let text = format!(
            "found false, expected true: {ADDRESS} is {metrics}, and without TLS and tokens \
             metrics are served on loopback only"
        );
        refuse(values, report, SECURE, text);
    }
    // A port that the system chooses is another one each time.
    let chosen = metrics.candidates().iter().any(|it| it.port() == 0);
    if secure && metrics == probes && metrics != BindAddress::Disabled && !chosen {
        let text = format!(
            "found {metrics}, which is {PROBES} too: metrics take TLS and a token, which kubelets \
             do not have; choose another port"
        );
        refuse(values, report, ADDRESS, text);
    }
}

fn check_files(values: &Values, report: &mut ConfigReport) {
    let is_set = |key| values.get(key).as_str().is_some_and(|it| !it.is_empty());
    let (there, missing) = match (is_set(CERTIFICATE), is_set(KEY)) {
        (true, false) => (CERTIFICATE, KEY),
        (false, true) => (KEY, CERTIFICATE),
        (false, false) => return,
        (true, true) => {
            if values.get(SECURE) == false {
                let text = format!("has no effect: {SECURE} is false");
                let origin = values.origin(CERTIFICATE);
                report.warnings.push(ConfigMessage { origin, key: CERTIFICATE.to_owned(), text });
            }
            return;
        }
    };
    refuse(values, report, there, format!("is of no use without {missing}; set both or none"));
}
