//! The server's certificate and key: from files, or made up for a test.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::cli::Cli;

/// A certificate chain, the server's own first, and its key.
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// A made-up root certificate and the file that is to hold it, if any.
pub(crate) struct RootFile(Option<(PathBuf, String)>);

impl RootFile {
    pub(crate) fn write(self) -> anyhow::Result<()> {
        let Some((file, root)) = self.0 else { return Ok(()) };
        std::fs::write(&file, root)
            .with_context(|| format!("cannot write the root certificate to {}", file.display()))
    }
}

/// Does what the command line says.
pub(crate) fn load(cli: &Cli) -> anyhow::Result<(Identity, RootFile)> {
    match (&cli.cert, &cli.key, cli.self_signed.as_slice()) {
        (Some(cert), Some(key), _) => Ok((from_files(cert, key)?, RootFile(None))),
        (_, _, []) => bail!(
            "HTTP/3 needs a certificate: give --cert FILE --key FILE, or for a test --self-signed localhost \
             --write-ca ca.pem"
        ),
        (_, _, names) => {
            let (identity, root) = made_up(names)?;
            Ok((identity, RootFile(cli.write_ca.clone().map(|file| (file, root)))))
        }
    }
}

fn from_files(cert: &Path, key: &Path) -> anyhow::Result<Identity> {
    let unusable = |file: &Path| format!("{} is not a PEM file of the kind wanted", file.display());
    let read = |file: &Path| {
        std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
    };
    let chain = CertificateDer::pem_slice_iter(&read(cert)?)
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| unusable(cert))?;
    ensure!(!chain.is_empty(), "{} holds no certificate", cert.display());
    let key_der = PrivateKeyDer::from_pem_slice(&read(key)?).with_context(|| unusable(key))?;
    Ok(Identity { chain, key: key_der })
}

/// Makes up a root and a certificate under it, and returns the root as PEM. The root's key is
/// forgotten at once, so nothing else can ever be signed with it.
fn made_up(names: &[String]) -> anyhow::Result<(Identity, String)> {
    let mut root = CertificateParams::default();
    root.distinguished_name.push(DnType::CommonName, "h3-upload-server test root");
    root.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let root =
        CertifiedIssuer::self_signed(root, KeyPair::generate().context("cannot make a key")?)
            .context("cannot make a root certificate")?;

    let mut own = CertificateParams::new(names)
        .with_context(|| format!("cannot make a certificate for {}", names.join(", ")))?;
    own.distinguished_name.push(DnType::CommonName, "h3-upload-server");
    own.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    own.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().context("cannot make a key")?;
    let own = own
        .signed_by(&key, &root)
        .with_context(|| format!("cannot make a certificate for {}", names.join(", ")))?;
    let identity = Identity {
        chain: vec![own.der().clone()],
        key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
    };
    Ok((identity, root.pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_certificates_are_good_for_rustls() {
        let (identity, root) = made_up(&["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let provider = rustls::crypto::ring::default_provider();
        let signer = provider.key_provider.load_private_key(identity.key).unwrap();
        let certified = rustls::sign::CertifiedKey::new(identity.chain, signer);
        certified.keys_match().unwrap();
        assert!(CertificateDer::from_pem_slice(root.as_bytes()).is_ok());
    }

    #[test]
    fn a_name_that_cannot_stand_in_a_certificate_is_named() {
        let error = made_up(&["bücher".to_owned()]).err().unwrap();
        assert!(error.to_string().contains("bücher"));
    }
}
