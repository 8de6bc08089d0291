// Signs and verifies credentials with Digital Bazaar's libraries. It reads
// {"sign": credential, "curve": NAME} or {"verify": credential} from stdin, and writes the credential signed
// with a new key, or {"verified": BOOLEAN, "why": TEXT}. Issuers have DIDs of did:key.
import {text} from 'node:stream/consumers';
import {DataIntegrityProof} from '@digitalbazaar/data-integrity';
import * as EcdsaMultikey from '@digitalbazaar/ecdsa-multikey';
import * as Ed25519Multikey from '@digitalbazaar/ed25519-multikey';
import * as ecdsa from '@digitalbazaar/ecdsa-jcs-2019-cryptosuite';
import * as eddsa from '@digitalbazaar/eddsa-jcs-2022-cryptosuite';
import jsigs from 'jsonld-signatures';

const MULTIKEY = 'https://w3id.org/security/multikey/v1';
const suites = {'ecdsa-jcs-2019': ecdsa, 'eddsa-jcs-2022': eddsa};

// A did:key stands for itself, so the loader needs no network, and gets none.
async function documentLoader(url) {
  const [did, fragment] = url.split('#');
  const key = did.replace(/^did:key:/, '');
  if(key === did) {
    throw new Error(`nothing is loaded: ${url}`);
  }
  const id = `${did}#${key}`;
  const method = {'@context': MULTIKEY, id, type: 'Multikey', controller: did, publicKeyMultibase: key};
  const document = fragment ? method : {
    '@context': ['https://www.w3.org/ns/did/v1', MULTIKEY], id: did, verificationMethod: [method], assertionMethod: [id]
  };
  return {contextUrl: null, documentUrl: url, document};
}

const {sign, curve, verify} = JSON.parse(await text(process.stdin));
const purpose = new jsigs.purposes.AssertionProofPurpose();
if(sign) {
  const [suite, keys] = curve === 'Ed25519' ? [eddsa, Ed25519Multikey] : [ecdsa, EcdsaMultikey];
  const pair = await keys.generate({curve});
  const {publicKeyMultibase: key} = await pair.export({publicKey: true});
  pair.controller = `did:key:${key}`;
  pair.id = `${pair.controller}#${key}`;
  const proof = new DataIntegrityProof({signer: pair.signer(), cryptosuite: suite.createSignCryptosuite()});
  const signed = await jsigs.sign({...sign, issuer: pair.controller}, {suite: proof, purpose, documentLoader});
  console.log(JSON.stringify(signed));
} else {
  const cryptosuite = suites[verify.proof.cryptosuite].createVerifyCryptosuite();
  const suite = new DataIntegrityProof({cryptosuite});
  const {verified, error} = await jsigs.verify(verify, {suite, purpose, documentLoader});
  console.log(JSON.stringify({verified, why: String(error?.errors ?? error ?? '')}));
}
