//! `modinfo`: what a module says about itself.

use gantry_kmod::module::SignatureInfo;
use gantry_kmod::{Compression, ModuleInfo};

use super::options::{OptionSpec, parse_options};
use super::{FAILED, Shell};
use crate::image::module_name;
use crate::kernel::MAX_MODULE_BYTES;

/// How many bytes of a signature are printed in one line.
const SIGNATURE_LINE_BYTES: usize = 20;

const OPTIONS: OptionSpec = OptionSpec {
    short: "adlpn0F:k:b:Vh",
    long: &[
        ("--author", 'a'),
        ("--description", 'd'),
        ("--license", 'l'),
        ("--parameters", 'p'),
        ("--filename", 'n'),
        ("--null", '0'),
        ("--field", 'F'),
        ("--set-version", 'k'),
        ("--basedir", 'b'),
    ],
};

impl Shell<'_> {
    pub(super) async fn modinfo(&mut self, arguments: &[&str]) -> u8 {
        let (options, words) = match parse_options(OPTIONS, arguments) {
            Ok(parsed) => parsed,
            Err(why) => return self.fail(&format!("modinfo: {why}"), FAILED).await,
        };
        if words.is_empty() {
            return self.fail("modinfo: ERROR: missing module or filename.", FAILED).await;
        }
        let shortcuts = [
            ('a', "author"),
            ('d', "description"),
            ('l', "license"),
            ('p', "parm"),
            ('n', "filename"),
        ];
        let shortcut = shortcuts.iter().find(|(letter, _)| options.has(*letter));
        let field = options.last_value('F').or_else(|| shortcut.map(|(_, field)| *field));
        let field = field.map(str::to_owned);
        let end = if options.has('0') { '\0' } else { '\n' };
        let running = self.release();
        let release = options.last_value('k').map_or_else(|| running.clone(), str::to_owned);
        let directory = options.last_value('b').map(|it| self.resolve(it)).unwrap_or_default();
        let directory = directory.trim_end_matches('/').to_owned();
        let mut code = 0;
        for word in &words {
            let in_tree = self.context.root.module_files(&directory, &release, &running);
            let wanted = crate::kernel::canonical_name(word);
            let named = in_tree.into_iter().find(|it| module_name(it).as_ref() == Some(&wanted));
            let path = if word.contains('/') || module_name(word).is_some() {
                Some(self.resolve(word))
            } else {
                named
            };
            let bytes = match &path {
                Some(path) => self.read_file(path).await.ok(),
                None => None,
            };
            let (Some(path), Some(bytes)) = (path, bytes) else {
                let message = format!("modinfo: ERROR: Module {word} not found.");
                code = self.fail(&message, FAILED).await;
                continue;
            };
            let text = tokio::task::spawn_blocking({
                let (path, field) = (path.clone(), field.clone());
                move || describe(&path, &bytes, field.as_deref(), end)
            });
            match text.await {
                Ok(Some(text)) => {
                    self.print(&text).await;
                }
                Ok(None) | Err(_) => {
                    if field.is_none() {
                        self.print(&format!("{:<16}{path}{end}", "filename:")).await;
                    }
                    let name = module_name(&path).unwrap_or_else(|| path.clone());
                    let why = format!("could not get modinfo from '{name}': Invalid argument");
                    code = self.fail(&format!("modinfo: ERROR: {why}"), FAILED).await;
                }
            }
        }
        code
    }
}

/// Formats one field of a module, or all; `None` if the file is no module.
pub(super) fn describe(path: &str, file: &[u8], field: Option<&str>, end: char) -> Option<String> {
    let module = Compression::detect(file).decompress(file, MAX_MODULE_BYTES).ok()?;
    let info = ModuleInfo::parse(&module).ok().filter(ModuleInfo::has_modinfo)?;
    let mut fields = vec![("filename".to_owned(), path.to_owned())];
    let mut parameters: Vec<(String, String, String)> = Vec::new();
    for (name, value) in info.fields() {
        if !matches!(name, "parm" | "parmtype") {
            fields.push((name.to_owned(), value.to_owned()));
            continue;
        }
        let (parameter, text) = value.split_once(':').unwrap_or((value, ""));
        let at = parameters.iter().position(|(known, ..)| known == parameter);
        let at = at.unwrap_or_else(|| {
            parameters.push((parameter.to_owned(), String::new(), String::new()));
            parameters.len() - 1
        });
        match name {
            "parm" => text.clone_into(&mut parameters[at].1),
            _ => text.clone_into(&mut parameters[at].2),
        }
    }
    // Of a signature that names a key identifier, kmod 30 shows nothing.
    let signature = SignatureInfo::of(&module);
    if let Some((signature, signer)) = signature.and_then(|it| Some((it.clone(), it.signer?))) {
        let bytes: Vec<&str> = signature.signature.split(':').collect();
        let lines: Vec<String> =
            bytes.chunks(SIGNATURE_LINE_BYTES).map(|it| it.join(":")).collect();
        let shown = [
            ("sig_id", signature.sig_id.to_owned()),
            ("signer", signer),
            ("sig_key", signature.sig_key.clone()),
            ("sig_hashalgo", signature.sig_hashalgo.name().to_owned()),
            ("signature", lines.join(":\n\t\t")),
        ];
        fields.extend(shown.map(|(name, value)| (name.to_owned(), value)));
    }
    for (name, about, kind) in parameters {
        let kind = if kind.is_empty() { String::new() } else { format!(" ({kind})") };
        fields.push(("parm".to_owned(), format!("{name}:{about}{kind}")));
    }
    let text = match field {
        Some(field) => {
            let found = fields.iter().filter(|(name, _)| name == field);
            found.map(|(_, value)| format!("{value}{end}")).collect()
        }
        None => {
            let line = |(name, value): &(String, String)| {
                let title = format!("{name}:");
                format!("{title:<16}{value}{end}")
            };
            fields.iter().map(line).collect()
        }
    };
    Some(text)
}
