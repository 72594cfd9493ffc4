from fuzz import products


def test_some_products_agree(capsys):
    assert products.main(["--count", "12", "--seed", "3"]) == 0
    assert capsys.readouterr().out == "12 programs, 0 failures\n"


def test_a_product_is_the_same_for_the_same_seed_and_a_wrong_one_is_told(monkeypatch):
    made = products.case(5, 1)
    assert made == products.case(5, 1)
    monkeypatch.setattr(products, "_UNITS", -1)
    assert "elements differ" in products.judge(made)
