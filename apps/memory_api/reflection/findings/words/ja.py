"""The reflection in Japanese."""

# ruff: noqa: E501 - a sentence is easier to judge on one line

from __future__ import annotations

from collections.abc import Sequence

from apps.memory_api.reflection.findings.schemas import (
    Again,
    Answer,
    Assertion,
    Contrast,
    Crash,
    Departure,
    Dialogue,
    Failure,
    Findings,
    Hop,
    Origin,
    Refusal,
    Repeat,
    Retry,
    Slow,
    Streak,
    Unconfirmed,
    Untold,
)
from apps.memory_api.traces.arguments import BODY, MARKS, SPACE, Change, named
from apps.memory_api.traces.schemas import OutcomeType

OUTCOMES = {
    OutcomeType.SUCCESS: "成功",
    OutcomeType.FAILURE: "失敗",
    OutcomeType.PARTIAL: "一部達成",
    OutcomeType.TIMEOUT: "時間切れ",
    OutcomeType.ERROR: "エラー",
}


def change(c: Change) -> str:
    """One changed argument, as part of a sentence."""
    if c.name == SPACE:
        return "字下げなどの空白だけを変えた"
    if c.name == MARKS:
        return "引数を引用符で囲んだ" if (c.after or "")[:1] in "\"'" else "引用符を外した"
    if c.name == BODY:
        return "送る本文を書き換えた"
    if c.name == "":
        if not c.after:
            return f"「{c.before}」を外した"
        if not c.before:
            return f"「{c.after}」を加えた"
        return f"「{c.before}」を「{c.after}」に替えた"
    if c.before is None:
        return f"{c.name}={c.after} を加えた"
    if c.after is None:
        return f"{c.name}（{c.before}）を外した"
    return f"{c.name} を {c.before} から {c.after} に変えた"


def joined(changes: Sequence[Change]) -> str:
    """Several changes in one sentence: …, …."""
    texts = [change(c) for c in changes]
    return "、".join(
        [
            t[:-1] + "て" if t.endswith("えた") else t[:-2] + "して" if t.endswith("した") else t
            for t in texts[:-1]
        ]
        + texts[-1:]
    )


def listed(items: Sequence[str]) -> str:
    return "、".join(items)


def _stop(text: str) -> str:
    return text if text.endswith(("。", "！", "？", "…", "!", "?")) else text + "。"


class Japanese:
    """Implements `Words`."""

    space = ""

    def opening(self, task: str) -> str:
        return f"依頼は「{task.rstrip(chr(0x3002))}」。" if task else ""

    def crash(self, c: Crash) -> str:
        where = f"（{c.place}）" if c.place else ""
        text = (
            f"実行は途中で異常終了した{where}。記録されたメッセージ：{_stop(c.message or 'なし')}"
        )
        if c.wanted and c.got:
            text += f"{c.wanted} 型を求める箇所に {c.got} 型が渡されている。"
        if c.cause_call:
            return text + f"直前の手順は {c.cause_call}（{c.cause_event}）だった。"
        return text + "異常終了の前の手順は記録に無く、何をしていたかは分からない。"

    def answered(self, a: Answer, won: bool) -> str:
        where = f"（{a.event}）" if a.event else ""
        if not a.given:
            return f"回答が無いまま終わった。正解は {a.expected}。"
        if a.verdict is True or (won and a.verdict is None):
            seen = (
                f"{a.given_call} の応答に出ている"
                if a.given_call
                else "どの応答にもそのままの形では出てこない"
            )
            return f"回答 {a.given}{where}は正解と判定された。" + (
                f"この語は{seen}。" if len(a.given) > 3 else ""
            )
        text = f"{a.given}{where}と答え" + ("、誤りと判定された" if a.verdict is False else "た")
        if a.expected is None:
            return text + "。正解は記録に無い。"
        if a.relation == "same":
            return text + f"。正解は {a.expected} で、違いは表記だけである。"
        if a.relation == "wider":
            return text + f"。正解の {a.expected} を含むが、余分な語が付いている。"
        if a.relation == "narrower":
            return text + f"。正解 {a.expected} の一部しか答えていない。"
        return text + f"。正解は {a.expected}。"

    def answer_seen(self, a: Answer) -> str:
        text = f"正解は {a.expected_call}（{a.expected_event}）の応答にすでに出ていた。"
        return text + (
            "一方、実際の回答はどの応答にも出てこない。" if a.given_event is None else ""
        )

    def answer_unseen(self, a: Answer) -> str:
        if a.given_event is None:
            return "回答はどの応答にも出てこず、読んで確かめたものではない。"
        text = f"回答の出所は {a.given_event} の応答"
        text += "だが、正解を含むページは一度も開いていない。" if a.expected else "である。"
        return text + (
            f"質問にある {listed(a.unsearched)} は検索されていない。" if a.unsearched else ""
        )

    def reasoning(self, a: Answer) -> str:
        return f"回答の直前の考え：{_stop(a.reason)}"

    def halted(self, f: Findings, outcome: OutcomeType) -> str:
        how = "時間または手数の上限に達し" if outcome is OutcomeType.TIMEOUT else "途中で止まり"
        if outcome is not OutcomeType.TIMEOUT and not f.last_message:
            return f"記録は {f.last_call}（{f.last_call_event}）で終わり、その後の発言は無い。"
        text = f"{f.calls}回の呼び出しの後、{how}、回答は無い。"
        if f.streaks and f.last_message:
            return text
        if f.last_message:
            return text + f"最後の {f.last_call} も失敗していた：{_stop(f.last_message)}"
        return text + (f"最後の呼び出しは {f.last_call}。" if f.last_call else "")

    def streak(self, s: Streak) -> str:
        if not s.tried:
            return f"{s.tool} は{s.count}回続けて失敗した（{'、'.join(f'「{m}」' for m in s.messages)}）。"
        kept = (
            f"どれも「{s.kept}」を残して言い換えただけである"
            if s.kept and len(s.tried) > 1
            else "続けて失敗した"
        )
        return f"{s.tool} は{s.count}回続けて失敗し、{kept}（{' → '.join(s.tried[:4])}）。"

    def ignored(self, s: Streak) -> str:
        if s.unquoted:
            return f"{s.unquoted} は同じ名前の項目が候補にあり、引用符だけが邪魔をしていた。"
        return f"応答は候補として {listed(s.untried)} を挙げていたが、どれも試していない。"

    def repeat(self, r: Repeat) -> str:
        end = "、毎回失敗した" if r.failing == r.count else "た"
        return f"{r.call} を変えずに{r.count}回送っ{'て' if end[0] == '、' else ''}{end}（{listed(r.events[:3])}）。"

    def departures(self, d: Sequence[Departure]) -> str:
        parts: list[str] = []
        for item in d[:3]:
            if item.kind == "changed":
                wrong = listed(
                    [
                        f"{c.name} は {c.after or '不要'} とすべきところ {c.before or 'なし'}"
                        for c in item.changes[:3]
                    ]
                )
                parts.append(f"{item.tool}（{item.event}）の引数が違う：{wrong}。")
            elif item.kind == "extra":
                parts.append(f"求められていない {item.call}（{item.event}）を実行した。")
        missing = [item.call for item in d if item.kind == "missing"]
        if missing:
            rest = f" ほか{len(missing) - 2}件" if len(missing) > 2 else ""
            parts.append(f"必要だった {listed(missing[:2])}{rest}は呼ばれていない。")
        return "".join(parts)

    def unnoticed(self, d: Departure) -> str:
        return f"{d.tool} はエラーを返さずに受け付けたので、実行中に誤りを示すものは何も無かった。"

    def untold(self, u: Sequence[Untold]) -> str:
        text = f"利用者に伝えるべき {listed([x.expected for x in u[:3]])} が一度も示されていない。"
        return text + (f"代わりの発言（{u[0].event}）：{_stop(u[0].said)}" if u[0].said else "")

    def refusal(self, r: Refusal) -> str:
        if r.kind == "handed_over":
            return f"担当者に引き継いだ（{r.event}）：{_stop(r.quote)}"
        text = f"「{r.asked}」に対し" if len(r.asked) > 10 else ""
        text += f"「{r.quote}」と断った（{r.event}）。"
        return text + (f"その後 {r.done_later} を実行している。" if r.done_later else "")

    def stood_firm(self, r: Refusal) -> str:
        return f"希望どおりにできない点は「{r.quote}」と伝えた（{r.event}）。"

    def unconfirmed(self, u: Unconfirmed) -> str:
        return f"規則に「{u.rule}」とあるが、{u.tool}（{u.event}）の直前の利用者の発言は「{u.user_said}」で、同意は見られない。"

    def assertions(self, a: Sequence[Assertion]) -> str:
        first = a[0]
        name = first.test or "テスト"
        if first.expected and first.actual:
            text = f"{name} が失敗：{first.expected} を期待して {first.actual} だった。"
        else:
            text = f"{name} が失敗：{_stop(first.message)}" if first.message else f"{name} が失敗。"
        others = [x.test for x in a[1:4]]
        return text + (f"ほかに {listed(others)} も失敗。" if others else "")

    def unrepaired(self, f: Failure, more: int) -> str:
        said = "続く発言" if f.stated == "words" else "応答"
        text = f"{f.call}（{f.event}）が失敗したまま直されていない。{said}は「{f.message}」。"
        return text + (f"ほかに{more}回の呼び出しも失敗した。" if more > 1 else "")

    def invented(self, f: Failure) -> str:
        return f"{listed(f.invented)} はそれまでの記録のどこにも無く、調べずに作られた値である。"

    def retry(self, r: Retry) -> str:
        times = f"{r.failures}回" if r.failures > 1 else "一度"
        if (
            r.changes
            and len(r.changes) <= 3
            and all(named(c) and c.before and c.after for c in r.changes)
        ):
            old, new = (
                listed([f"{c.name}={v}" for c in r.changes for v in [getattr(c, side)]])
                for side in ("before", "after")
            )
            again = f"{times}" if r.failures > 1 else ""
            via = f"（{r.via} の応答にあった値）" if r.via else ""
            return f"{r.tool} は {old} では{again}「{r.message.rstrip('。')}」となり、{new}{via} に変えて通った（{r.event}）。"
        if r.changes and all(named(c) and c.after is None for c in r.changes):
            return f"{r.tool} は「{r.message.rstrip('。')}」となったが、条件の {listed([f'{c.name}={c.before}' for c in r.changes])} を外すと通った（{r.event}）。"
        many = f"{r.tool} は{times}失敗し、最後は {r.before} だった"
        failed = many if r.failures > 1 and r.tool else f"{r.before} は{times}失敗した"
        text = f"{failed}（「{r.message}」）。"
        if not r.changes:
            done = f"{listed(r.between)} の後、" if r.between else ""
            return text + f"{done}同じ内容の再実行（{r.event}）で通った。"
        if r.took_offer:
            return text + f"応答が挙げた候補をそのまま使った {r.after}（{r.event}）で通った。"
        text += f"{joined(r.changes[:3])}ところ、{r.event} で通った。"
        return text + (f"新しい値は {r.via} の応答から取っている。" if r.via else "")

    def retried_wrong(self, r: Retry) -> str:
        return f"最初の呼び出しは「{r.message}」で断られ、通すために{joined(r.changes[:3])}（{r.event}）。"

    def contrast(self, c: Contrast) -> str:
        who = "先に失敗した試行" if c.we_succeeded else "成功した試行"
        if c.their_answer and not c.ours and not c.theirs:
            return f"{who}は同じ呼び出しの後 {c.their_answer} と答えている。"
        if c.changes:
            return f"{who}と {c.tool} の引数が違う：{joined(c.changes[:2])}。"
        mine, other = (c.ours, c.theirs) if c.we_succeeded else (c.theirs, c.ours)
        if mine:
            return f"成功した側だけが {listed(mine[:2])} を行っている。"
        return f"失敗した側だけが {listed(other[:2])} を行っている。"

    def again(self, a: Again, won: bool, lesson: bool) -> str:
        if won:
            return f"先の{a.times}回の試行と呼び出しがすべて同じで、同じ箇所でつまずいている。"
        text = f"まったく同じ呼び出しで同じ結果に終わるのは{a.times + 1}回目である"
        return text + ("。冒頭に以前の教訓が示されていたが、変わっていない。" if lesson else "。")

    def hops(self, hops: Sequence[Hop]) -> str:
        first = hops[0]
        text = f"質問には無い {first.name} が {first.start} の応答に出ており、それを次の {first.call} に使った"
        return text + (f"。さらに {hops[1].name} へ進んだ。" if len(hops) > 1 else "。")

    def path(self, f: Findings) -> str:
        if f.calls == 1:
            return f"呼び出しは {f.last_call} の1回だけである。"
        way = " → ".join(tool if n == 1 else f"{tool} ×{n}" for tool, n in f.path)
        return (
            f"失敗した呼び出しは無く、順序は {way}。"
            if not f.failed_calls
            else f"全体の順序は {way}。"
        )

    def origin(self, o: Origin) -> str:
        tools = list(dict.fromkeys(tool for _, _, tool in o.from_tools))[:2]
        parts = [
            f"{listed([n for n, _, t in o.from_tools if t == tool])} は {tool} の応答から"
            for tool in tools
        ]
        said = [n for n, _ in o.from_user if n not in dict(o.carried)]
        if said:
            parts.append(f"{listed(said[:4])} は利用者の言葉から")
        if o.carried:
            parts.append(f"{listed([f'{n}={v}' for n, v in o.carried])} は前の呼び出しから")
        text = f"{o.call}（{o.event}）の引数のうち、{listed(parts)}取っている。" if parts else ""
        if not text and o.writes:
            text = f"最後に変更したのは {o.call}（{o.event}）。"
        return text + (f"実行前に利用者は「{o.confirmed}」と答えている。" if o.confirmed else "")

    def slow(self, s: Slow) -> str:
        return f"最も時間がかかったのは {s.call}（{s.event}）の {s.seconds:.3g} 秒で、計測時間の {round(100 * s.share)}% を占める。"

    def talk(self, d: Dialogue, outcome: OutcomeType) -> str:
        about = f"{d.topic}を話題にした" if d.topic else ""
        text = f"{about}{d.turns}往復の対話"
        if d.ratings:
            return text + f"で、評価は {listed([f'{n} {v:g}' for n, v in d.ratings])}。"
        return text + f"で、結果は{OUTCOMES[outcome]}。"

    def talk_manner(self, d: Dialogue, won: bool) -> str:
        asked = self._asked(d)
        taken = self._taken(d)
        text = f"{asked}。{taken}。"
        if d.repeated:
            text += "".join(f"「{p}」が{n}回の返答に現れる。" for p, n in d.repeated[:2])
        if d.unhappy:
            text += f"利用者は {d.unhappy_event} で「{d.unhappy}」と返しており、"
            text += (
                f"その前の発言は「{d.before_unhappy}」だった。"
                if d.before_unhappy
                else "不満が見える。"
            )
        elif won and d.drew and len(d.drew) > 24:
            text += f"利用者が最も長く応じたのは「{d.drew}」（{d.drew_event}）に対してである。"
        elif not won and d.shortest:
            text += f"最も短い返答は「{d.shortest}」（{d.shortest_event}）。"
        return text

    def _asked(self, d: Dialogue) -> str:
        if d.asked_back == 0:
            return f"エージェントは{d.replies}回の返答で一度も問い返していない"
        if d.asked_back * 2 >= d.replies:
            return f"返答の半分以上（{d.replies}回中{d.asked_back}回）を問いかけで終えている"
        return f"問いかけで終えた返答は{d.replies}回中{d.asked_back}回にとどまる"

    def _taken(self, d: Dialogue) -> str:
        if not d.words:
            return "相手の言葉を繰り返して受けた返答は無い"
        share = "ほぼ毎回" if d.taken_up * 5 >= d.replies * 4 else f"{d.taken_up}回の返答で"
        return f"{listed(d.words[:3])}など相手の言葉を{share}受けている"

    def unexplained(self, f: Findings, outcome: OutcomeType) -> str:
        text = f"結果は{OUTCOMES[outcome]}だが、理由は記録に現れていない。"
        if f.calls and not f.failed_calls:
            text += f"{f.calls}回の呼び出しはすべて受け付けられた。"
        if f.writes > 1:
            return (
                text
                + f"変更は{f.writes}回で、最初は {f.first_write}（{f.first_write_event}）、最後は {f.last_write}（{f.last_write_event}）。"
            )
        if f.last_write:
            return text + f"変更したのは {f.last_write}（{f.last_write_event}）。"
        return text + (
            f"最後の発言（{f.last_said_event}）：{_stop(f.last_said)}" if f.last_said else ""
        )

    def closing(self, f: Findings) -> str:
        return f"最後の発言（{f.last_said_event}）：{_stop(f.last_said)}"

    def stated(self, message: str, event: str | None) -> str:
        return f"実行全体のエラーとして「{message}」が報告されている。" + (
            f"記録の最後の手順は {event}。" if event else ""
        )
