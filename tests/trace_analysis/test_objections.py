"""Objections between agents in the language of the run: sentences that must and must not appear."""

from __future__ import annotations

from dataclasses import dataclass

from memory_api.trace_analysis.vocabulary import load_vocabulary
from tests.support.cases import each_case
from tests.support.runs import Row, call, findings, reflection, says, user


@dataclass(frozen=True)
class Discussion:
    """An agent states `claim`, another one `objects` or `agrees`, and the first one `keeps` it."""

    language: str
    task: str
    claim: str
    objects: tuple[str, ...]
    agrees: tuple[str, ...]
    keeps: str


DISCUSSIONS = [
    Discussion(
        "en",
        "How many of the ships in the register are still in service?",
        "It is 45.",
        ("45 is too high, the doubles are still in it.", "The 45 can't be right."),
        ("I see nothing wrong with 45.", "45 is not too high.", "45 is plausible."),
        "We go with 45.",
    ),
    Discussion(
        "de",
        "Wie viele Schiffe aus dem Register sind noch im Dienst? Bitte nur die Zahl.",
        "Es sind 45 Schiffe.",
        (
            "Die 45 stimmt nicht, doppelte Einträge sind mitgezählt.",
            "45 ist zu hoch.",
            "Der Wert 45 ist veraltet.",
            "Das passt nicht zu den 45.",
        ),
        ("An der 45 ist nichts falsch.", "45 ist nicht zu hoch.", "45 klingt gut, danke."),
        "Die Antwort ist 45.",
    ),
    Discussion(
        "fr",
        "Combien de navires du registre sont encore en service pour la compagnie ?",
        "Il y en a 45.",
        ("Le chiffre 45 est faux, il y a des doublons.", "45 est trop élevé.", "45 ne colle pas."),
        ("Il n'y a rien d'incorrect dans le 45.", "45 n'est pas trop élevé.", "45, c'est noté."),
        "La réponse est 45.",
    ),
    Discussion(
        "es",
        "¿Cuántos barcos del registro siguen en servicio para la compañía?",
        "Son 45 barcos.",
        (
            "El 45 no es correcto, hay duplicados.",
            "45 es demasiado.",
            "No coincide: 45 frente a 39.",
        ),
        ("No hay nada incorrecto en el 45.", "45 no es demasiado.", "45 me parece bien."),
        "La respuesta es 45.",
    ),
    Discussion(
        "pt",
        "Quantos navios do registo ainda estão em serviço para a companhia?",
        "São 45 navios.",
        ("O 45 está errado, há duplicados.", "45 é alto demais.", "45 não bate com a lista."),
        ("Não há nada errado no 45.", "45 não é alto demais.", "45 parece bom."),
        "A resposta é 45.",
    ),
    Discussion(
        "it",
        "Quante navi del registro sono ancora in servizio per la compagnia?",
        "Sono 45 navi.",
        ("Il 45 è sbagliato, ci sono doppioni.", "45 è troppo.", "Il conto non torna: 45 o 39?"),
        ("Non c'è niente di sbagliato nel 45.", "45 non è troppo.", "45 va bene."),
        "La risposta è 45.",
    ),
    Discussion(
        "ja",
        "登録簿の船のうち、現在も運航している船は何隻ですか。",
        "45 隻です。",
        (
            "45 は間違いです。重複が含まれています。",
            "45 は多すぎます。",
            "45 は一覧と一致しません。",
        ),
        ("45 に間違いはありません。", "45 は多すぎません。", "45 で問題ないと思います。"),
        "回答は 45 です。",
    ),
]
ALL = [(d, text, True) for d in DISCUSSIONS for text in d.objects] + [
    (d, text, False) for d in DISCUSSIONS for text in d.agrees
]


def rows_of(d: Discussion, answer: str) -> list[Row]:
    rows = call("count", {"file": "ship.db"}, "45")
    return [
        user(d.task),
        *(row | {"agent": "Coder"} for row in rows),
        says(d.claim, "Coder"),
        says(answer, "Inspector"),
        says(d.keeps, "Coder"),
    ]


@each_case(("discussion", "answer", "is_objection"), ALL)
def test_objection_in_the_language_of_the_run(
    discussion: Discussion, answer: str, is_objection: bool
) -> None:
    rows = rows_of(discussion, answer)
    found = findings(rows)
    assert found.language == discussion.language
    ignored = [d for d in found.divergences if d.kind == "ignored_objection"]
    result = reflection(rows)
    text = result.reflection_text if result else ""
    if is_objection:
        assert [(d.event_id, d.source_event_id) for d in ignored] == [("e5", "e4")]
        sentence = "e4 の発言：" if discussion.language == "ja" else "e4 says: “"
        assert sentence in text, text
        assert answer.split(".")[0].split("。")[0] in text
    else:
        assert ignored == []
        assert answer not in text, text


def test_german_nouns_are_no_names() -> None:
    rows = [
        user("Wie viele Aufträge wurden im Mai storniert? Bitte die Zahl aus der Datei nennen."),
        says("Prüfer, bitte öffne die Datei.", "Leiter"),
        says("In der Datei stehen 58 Zeilen mit dem Status storniert.", "Prüfer"),
        says("Die Antwort ist 58.", "Leiter"),
    ]
    assert not [d for d in findings(rows).divergences if d.kind == "without_call"]


def test_words_of_another_language_are_no_objection() -> None:
    german = DISCUSSIONS[1]
    found = findings(rows_of(german, "45 is wrong, says the list."))
    assert not [d for d in found.divergences if d.kind == "ignored_objection"]
    assert load_vocabulary("en").search("objection", "Das stimmt nicht.") is None


@each_case(
    ("first", "answer", "complaint"),
    [
        (
            "Guten Tag, wann kommt meine Bestellung? Bitte prüfen.",
            "Am Montag.",
            "Das stimmt nicht.",
        ),
        (
            "Bonjour, je voudrais le prix pour la maison.",
            "5 euros.",
            "Ce n'est pas ce que j'ai dit.",
        ),
        ("Hola, necesito el plazo para recurrir la multa.", "15 días.", "Eso no es correcto."),
        ("Olá, não consigo ver a minha fatura de março.", "Veja.", "Isso não ajuda."),
        (
            "Ciao, non trovo la bolletta di aprile per il gas.",
            "Ecco.",
            "Non è quello che ho chiesto.",
        ),
    ],
)
def test_dissatisfied_message_is_quoted(first: str, answer: str, complaint: str) -> None:
    rows = [user(first), says(answer), user(complaint), says("…")]
    found = findings(rows).dialogue
    assert found is not None
    assert (found.dissatisfied_event_id, found.dissatisfied_message) == ("e2", complaint)
    quiet = findings([user(complaint), says(answer), user(first), says("…")]).dialogue
    assert quiet is not None
    assert quiet.dissatisfied_message is None
